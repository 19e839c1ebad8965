#include "logger.hpp"

#include "address_text.hpp"
#include "base/text_writer.hpp"

#include <cordma/base/error.hpp>

#include <array>
#include <utility>

namespace cordma::detail {
namespace {

/// A text of which each byte is printable.
class printable_text {
 public:
  explicit printable_text(std::string_view text) noexcept { out_.put(text); }
  printable_text(const socket_address* address, std::string_view name) noexcept {
    address != nullptr ? out_.put(address_text(*address).view()) : out_.put(name);
  }
  printable_text(const printable_text&) = delete;
  [[nodiscard]] std::string_view view() const noexcept { return out_.text(); }

 private:
  std::array<char, 240> bytes_;
  text_writer out_{bytes_};
};

}  // namespace

logger::logger(const cordma::executor& clock, event_log options) noexcept
    : clock_{clock}, hook_{std::move(options.hook)} {
  constexpr unsigned events = unsigned(event_log::kind::fabric_changed) + 1;
  static_assert(events <= 32, "each event has a bit");
  if (!hook_) return;
  for (unsigned event = 0; event < events; ++event)
    if (event_log::level_of(event_log::kind(event)) <= options.least_urgent)
      wanted_ |= std::uint32_t{1} << event;
}

void logger::write(event_log::kind event, const log_facts& facts) const noexcept {
  const printable_text peer{facts.peer, facts.peer_name};
  const printable_text identity{facts.identity};
  const printable_text local{facts.local, facts.local_name};
  const printable_text note{facts.note};
  event_log::record record{.kind = event,
                           .level = event_log::level_of(event),
                           .time = clock_.now(),
                           .peer = peer.view(),
                           .identity = identity.view(),
                           .local = local.view(),
                           .bootstrap = facts.bootstrap,
                           .qpn = facts.qpn,
                           .bytes = facts.bytes,
                           .note = note.view()};
  failure why;
  if (facts.why != nullptr) {
    why = *facts.why;
    why.detail = printable_text{why.detail.view()}.view();
    record.why = &why;
  }
  try {
    hook_(record);
  } catch (...) {
    // The library's work goes on without the record.
  }
}

}  // namespace cordma::detail
