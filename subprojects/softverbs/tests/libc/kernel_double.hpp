#pragma once

// A library behind libsoftverbs_cm.so and ahead of libc: it pretends that the kernel has rdma_cm.

extern "C" {

/// The error of the next opens of the kernel's rdma_cm (ENOENT at first); 0: they succeed, on
/// /dev/null. The variable SOFTVERBS_TEST_KERNEL_RDMA_CM does the same for a whole program.
void kernel_double_rdma_cm(int error);
/// Sets the text of /proc/misc from now on; null: the file's own text.
void kernel_double_misc(const char* text);
/// The number of opens so far, of any file.
long kernel_double_opens();
}
