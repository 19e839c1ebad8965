#pragma once

// SOFTVERBS_SANITIZED: the program has the malloc and the dlopen of a sanitizer.

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SOFTVERBS_SANITIZED
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SOFTVERBS_SANITIZED
#endif
#endif
