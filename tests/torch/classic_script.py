"""A training script as they have been written for years: nothing in it is special to this implementation."""

import argparse

import torch
import torch.nn.functional as F
import torch.utils.data.distributed
from torch import nn

import horovod.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--fp16-allreduce", action="store_true")
parser.add_argument("--use-adasum", action="store_true")
parser.add_argument("--epochs", type=int, default=5)
args = parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=5)
        self.conv2_drop = nn.Dropout2d(0.1)
        self.fc1 = nn.Linear(144, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv1(x)), 2))
        x = F.relu(self.fc1(x.view(-1, 144)))
        return F.log_softmax(self.fc2(x), dim=1)


def digits():
    """Ten patterns with noise."""
    random = torch.Generator().manual_seed(0)
    patterns = torch.randn(10, 1, 16, 16, generator=random)
    labels = torch.arange(640) % 10
    return patterns[labels] + 0.5 * torch.randn(640, 1, 16, 16, generator=random), labels


def metric_average(val, name):
    return hvd.allreduce(torch.tensor(val), name=name).item()


hvd.init()
torch.manual_seed(42 + hvd.rank())  # other weights on each rank until they are broadcast
torch.set_num_threads(1)
dataset = torch.utils.data.TensorDataset(*digits())
sampler = torch.utils.data.distributed.DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
loader = torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler)

model = Net()
lr_scaler = hvd.size() if not args.use_adasum else 1
optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * lr_scaler, momentum=0.5)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
optimizer = hvd.DistributedOptimizer(
    optimizer,
    named_parameters=model.named_parameters(),
    compression=compression,
    op=hvd.Adasum if args.use_adasum else hvd.Average,
)
for epoch in range(1, args.epochs + 1):
    model.train()
    sampler.set_epoch(epoch)
    for data, target in loader:
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()

model.eval()
with torch.no_grad():
    images, labels = digits()
    accuracy = (model(images).argmax(1) == labels).float().mean().item()
accuracy = metric_average(accuracy, "avg_accuracy")
same = all(
    len(set(hvd.allgather(p.data.view(1, -1)).double().sum(1).tolist())) == 1 for p in model.parameters()
)
if hvd.rank() == 0:
    print(f"accuracy {accuracy:.3f}, parameters {'agree' if same else 'differ'}")
