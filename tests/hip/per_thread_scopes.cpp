// SPDX-License-Identifier: MIT
// The training code of the test: compiled with one default stream per thread, as by hipcc
// -fgpu-default-stream=per-thread. The file that opens the GPU is not.
#define HIP_API_PER_THREAD_DEFAULT_STREAM 1
#include <tests/hip/per_thread_scopes.hpp>

namespace per_thread {

Token::Token(const kdvfs::BoundGpu<Policies>& gpu, bool low) {
    if (low) {
        low_.emplace(gpu, nullptr);
    } else {
        high_.emplace(gpu, nullptr);
    }
}

kdvfs::StreamRef null_stream() { return nullptr; }

}  // namespace per_thread
