#pragma once

namespace softverbs {

/// Reasons why a peer is unreachable that a user can remove. Verbs have no code for them: the
/// request ends with IBV_WC_RETRY_EXC_ERR.
enum class hint { other_user, nobody_listens, bad_peer, no_announcements };

/// Prints a warning on stderr, once in a process, as libibverbs does.
[[gnu::format(printf, 2, 3)]] void warn_once(hint what, const char* format, ...) noexcept;

}  // namespace softverbs
