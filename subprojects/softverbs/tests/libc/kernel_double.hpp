#pragma once

// A library behind libsoftverbs_cm.so and ahead of libc: it pretends that the kernel has rdma_cm.

extern "C" {

/// The error of the next opens of the kernel's rdma_cm (ENOENT at first); 0: they succeed, on
/// /dev/null. The variable SOFTVERBS_TEST_KERNEL_RDMA_CM does the same for a whole program.
void kernel_double_rdma_cm(int error);
/// What /proc/misc says from now on; null: what is there.
void kernel_double_misc(const char* text);
/// How many opens came, of any file.
long kernel_double_opens();
}
