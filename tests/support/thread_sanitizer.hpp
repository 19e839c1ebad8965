#pragma once

// A fork takes none of jemalloc's locks under ThreadSanitizer, which has no room for those of all
// arenas: a child may inherit one that another thread held.
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
