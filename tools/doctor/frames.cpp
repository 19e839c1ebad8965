#include "frames.hpp"

#include <cstring>

namespace doctor {
namespace {

constexpr std::array<char, 8> magic{'c', 'o', 'r', 'd', 'm', 'a', '-', 'd'};
constexpr std::uint8_t version = 1;

/// The bytes on the wire, little-endian as the hosts.
struct frame {
  std::array<char, 8> magic{};
  std::uint8_t version = 0;
  std::uint8_t op = 0;  ///< 0: none.
  std::uint8_t server_acts = 0;
  std::array<std::uint8_t, 5> reserved{};
  std::uint64_t number = 0;
};
static_assert(sizeof(frame) == 24);

}  // namespace

private_data encode(const purpose& p) noexcept {
  const frame f{.magic = magic,
                .version = version,
                .op = std::uint8_t(p.op ? *p.op : operation{}),
                .server_acts = p.server_acts,
                .number = p.number};
  private_data data{};
  std::memcpy(data.data(), &f, sizeof f);
  return data;
}

std::optional<purpose> decode(const private_data& data) noexcept {
  frame f;
  std::memcpy(&f, data.data(), sizeof f);
  if (f.magic != magic || f.version != version) return std::nullopt;
  if (f.op != 0 && !is_operation(f.op)) return std::nullopt;
  purpose p{.server_acts = f.server_acts != 0, .number = f.number};
  if (f.op != 0) p.op = operation(f.op);
  return p;
}

std::string encode(const outcome& o) {
  constexpr std::array marks{'+', '=', '-'};
  return marks[std::size_t(o.kind)] + o.text;
}

outcome decode_outcome(std::string_view text) {
  outcome o;
  if (text.starts_with('+')) o.kind = outcome_kind::success;
  if (text.starts_with('=')) o.kind = outcome_kind::not_there;
  o.text = text.empty() ? "the peer gives no outcome" : std::string{text.substr(1)};
  return o;
}

cordma::task<outcome> outcome_of_act(cordma::runtime& rt, cordma::connection conn, operation op) {
  outcome o;
  try {
    o.text = co_await act(rt, std::move(conn), op);
    o.kind = outcome_kind::success;
  } catch (const cordma::cancelled&) {
    throw;
  } catch (const not_there& e) {
    o.kind = outcome_kind::not_there;
    o.text = e.what();
  } catch (const cordma::error& e) {
    // Without memory windows nothing is lent, and long messages need that.
    if (e.code() == cordma::errc::not_supported) o.kind = outcome_kind::not_there;
    o.text = e.what();
  } catch (const std::exception& e) {
    o.text = e.what();
  }
  co_return o;
}

}  // namespace doctor
