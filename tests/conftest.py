import torch

# Tests train small networks, often in several processes at once: more threads would only be in each other's way.
torch.set_num_threads(1)
