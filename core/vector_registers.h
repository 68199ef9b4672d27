// What kernels of other libraries leave behind in a thread's vector registers.
#pragma once

namespace sluice {

// Ends this thread's use of the upper halves of its vector registers (x86's vzeroupper; nothing elsewhere). LibTorch's
// kernels may return with them in use, and a thread that is started then has them in use, too. While they are, every
// change between instructions of the older encoding, which a portable build's floating point is made of, and of the
// newer one, which the C library's functions are, may cost a hundred nanoseconds (Intel 64 and IA-32 Architectures
// Optimization Reference Manual, "Mixing SSE and AVX code"). Takes a few cycles. For any thread.
void release_upper_halves();

}  // namespace sluice
