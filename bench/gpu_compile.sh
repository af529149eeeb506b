# SPDX-License-Identifier: MIT
# For scripts that build for a real NVIDIA GPU, which read this with `root` set:
#   NVCC            the compiler (default: nvcc, or /usr/local/cuda/bin/nvcc)
#   KDVFS_GPU_ARCH  default: native
#   KDVFS_DEPS      a folder with gsl/ in it or in its include/, where GSL is not installed
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}

# gpu_compile ARGUMENT...: sources and options, with the project's folders.
gpu_compile() {
    [ -z "${KDVFS_DEPS:-}" ] || set -- "$@" -I"$KDVFS_DEPS" -I"$KDVFS_DEPS/include"
    "$nvcc" -x cu -std=c++20 -arch="${KDVFS_GPU_ARCH:-native}" -I"$root/include" \
        -I"$root/examples" -I"$root" "$@"
}
