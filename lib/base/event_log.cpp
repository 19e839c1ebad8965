#include <cordma/base/event_log.hpp>

#include "failures.hpp"
#include "text_writer.hpp"

#include <cordma/base/error.hpp>

#include <array>
#include <chrono>
#include <cstdarg>
#include <cstdio>

namespace cordma {
namespace {

using detail::text_writer;

struct traits {
  const char* name;
  event_log::level level;
};

constexpr traits traits_of(event_log::kind event) noexcept {
  using enum event_log::level;
  switch (event) {
    case event_log::kind::connected: return {"connected", info};
    case event_log::kind::connect_failed: return {"connect_failed", warning};
    case event_log::kind::client_refused: return {"client_refused", warning};
    case event_log::kind::closed: return {"closed", info};
    case event_log::kind::lost: return {"lost", warning};
    case event_log::kind::listening: return {"listening", info};
    case event_log::kind::listener_closed: return {"listener_closed", info};
    case event_log::kind::accept_failed: return {"accept_failed", warning};
    case event_log::kind::lease_opened: return {"lease_opened", debug};
    case event_log::kind::lease_returned: return {"lease_returned", debug};
    case event_log::kind::lease_handed_over: return {"lease_handed_over", debug};
    case event_log::kind::lease_revoked: return {"lease_revoked", info};
    case event_log::kind::lease_expired: return {"lease_expired", warning};
    case event_log::kind::lease_disconnected: return {"lease_disconnected", debug};
    case event_log::kind::lease_refused: return {"lease_refused", warning};
    case event_log::kind::memory_kept: return {"memory_kept", error};
    case event_log::kind::rank_lost: return {"rank_lost", warning};
    case event_log::kind::device_failed: return {"device_failed", error};
    case event_log::kind::port_down: return {"port_down", warning};
    case event_log::kind::port_up: return {"port_up", info};
    case event_log::kind::fabric_changed: return {"fabric_changed", info};
  }
  return {"unknown event", error};
}

/// Writes numbers, as printf does.
[[gnu::format(printf, 2, 3)]] void put_numbers(text_writer& out, const char* format, ...) noexcept {
  std::array<char, 64> text;
  va_list numbers;
  va_start(numbers, format);
  std::vsnprintf(text.data(), text.size(), format, numbers);
  va_end(numbers);
  out.put(text.data());
}

/// Writes a text as a word, or in quotation marks, of which none are inside.
void put_value(text_writer& out, const char* key, std::string_view value) noexcept {
  if (value.empty()) return;
  out.put(" ");
  out.put(key);
  out.put("=");
  const bool is_word = value.find_first_of(" \"'=") == value.npos;
  if (is_word) return out.put(value);
  out.put("\"");
  for (const char& c : value) out.put(c == '"' ? std::string_view{"'"} : std::string_view{&c, 1});
  out.put("\"");
}

}  // namespace

const char* to_string(event_log::level level) noexcept {
  switch (level) {
    case event_log::level::error: return "error";
    case event_log::level::warning: return "warning";
    case event_log::level::info: return "info";
    case event_log::level::debug: return "debug";
  }
  return "unknown level";
}

const char* to_string(event_log::kind kind) noexcept { return traits_of(kind).name; }
event_log::level event_log::level_of(kind of) noexcept { return traits_of(of).level; }

std::size_t event_log::record::write_to(std::span<char> into) const noexcept {
  using namespace std::chrono;
  text_writer out{into};
  const long long all = duration_cast<microseconds>(time.time_since_epoch()).count();
  put_numbers(out, "%lld.%06lld ", all / 1'000'000, all % 1'000'000);
  out.put(cordma::to_string(level));
  out.put(" ");
  out.put(cordma::to_string(kind));
  put_value(out, "peer", peer);
  put_value(out, "identity", identity);
  put_value(out, "local", local);
  put_value(out, "bootstrap", bootstrap);
  if (qpn != 0) put_numbers(out, " qpn=0x%x", qpn);
  if (bytes != 0) put_numbers(out, " bytes=%llu", static_cast<unsigned long long>(bytes));
  put_value(out, "note", note);
  if (why != nullptr) {
    std::array<char, detail::failure_text_max> text;
    put_value(out, "why", detail::write_failure(*why, text));
  }
  return out.text().size();
}

std::string event_log::record::to_string() const {
  std::array<char, 1023> line;
  return {line.data(), write_to(line)};
}

}  // namespace cordma
