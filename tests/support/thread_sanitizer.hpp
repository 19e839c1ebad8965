#pragma once

// ThreadSanitizer starts no thread in the child of a fork, and a fork takes the locks of every
// arena that there was, for which it has no room.
#if defined(__SANITIZE_THREAD__)
#define CORDMA_TEST_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CORDMA_TEST_THREAD_SANITIZER 1
#endif
#endif
#ifndef CORDMA_TEST_THREAD_SANITIZER
#define CORDMA_TEST_THREAD_SANITIZER 0
#endif
