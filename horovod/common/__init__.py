"""What the framework modules share.

The package itself loads neither a framework nor the native library.
"""
