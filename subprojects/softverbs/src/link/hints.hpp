#pragma once

namespace softverbs {

/// Reasons for which a peer cannot be reached that its user can take away, and that a verbs call
/// has no words for: it ends as IBV_WC_RETRY_EXC_ERR does.
enum class hint { other_user, nobody_listens };

/// Says so on stderr, once in a process: as libibverbs warns of what it finds.
[[gnu::format(printf, 2, 3)]] void tell_once(hint what, const char* format, ...) noexcept;

}  // namespace softverbs
