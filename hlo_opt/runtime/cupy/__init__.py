"""The backend cupy: kernels through NVRTC on a GPU, loops and stretches as CUDA graphs."""
