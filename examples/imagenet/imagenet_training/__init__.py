"""The parts of train_imagenet_resnet_hvd.py."""
