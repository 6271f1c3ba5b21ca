"""The backend host: kernels, and the schedule itself, built with the C++ compiler; the sanitizers."""
