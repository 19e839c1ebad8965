#pragma once

// CORDMA_TEST_THREAD_SANITIZER: tests do without three things under ThreadSanitizer. A handler of a
// signal calls nothing that allocates. A fork takes
// none of jemalloc's locks, because the sanitizer has no room for those of all arenas. Mapping
// thousands of chunks takes minutes, because each one's shadow is cleared.
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
