#include "meeting_frame.hpp"

#include "base/failures.hpp"
#include "base/little_endian.hpp"
#include "meeting_member.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

namespace cordma::detail::meeting_frame {
namespace {

/// Ends with the protocol's version.
constexpr std::string_view mark{"cdmeet\0\1", 8};
enum class kind : std::uint8_t { part = 1, refusal = 2 };

[[noreturn]] void throw_bad(fixed_text<240> detail) {
  throw_failure(errc::bad_message, "meeting", detail);
}

class writer {
 public:
  explicit writer(std::size_t bytes_max) {
    made_.reserve(bytes_max);
    put(mark);
  }
  void put(std::string_view text) {
    const auto all = std::as_bytes(std::span{text});
    made_.insert(made_.end(), all.begin(), all.end());
  }
  template <std::unsigned_integral T>
  void put(T number) {
    std::byte all[sizeof number];
    little_endian::put(all, number);
    made_.insert(made_.end(), std::begin(all), std::end(all));
  }
  void put(const group_name& name) { made_.insert(made_.end(), name.begin(), name.end()); }
  void put(const group_member& one) {
    CORDMA_ASSERT(one.endpoint.size() <= endpoint_bytes_max, "the endpoint was checked");
    put(one.host);
    put(std::uint16_t(one.endpoint.size()));
    put(std::string_view{one.endpoint});
  }
  bytes take() && { return std::move(made_); }
  [[nodiscard]] std::size_t size() const noexcept { return made_.size(); }

 private:
  bytes made_;
};

std::size_t size_of(const group_member& one) noexcept {
  return sizeof one.host + sizeof(std::uint16_t) + one.endpoint.size();
}

class reader {
 public:
  /// \errors errc::bad_message: no mark of this version.
  explicit reader(std::span<const std::byte> message) : rest_{message} {
    if (text(mark.size()) != mark)
      throw_bad("the first bytes are no mark of a group, or of another version of cordma");
  }
  template <std::unsigned_integral T>
  T number() {
    return little_endian::get<T>(take(sizeof(T)).data());
  }
  std::string_view text(std::size_t size) {
    const auto all = take(size);
    return {reinterpret_cast<const char*>(all.data()), all.size()};
  }
  group_name name() {
    group_name all;
    std::memcpy(all.data(), take(all.size()).data(), all.size());
    return all;
  }
  group_member member() {
    group_member one;
    one.host = number<std::uint64_t>();
    one.endpoint = text(number<std::uint16_t>());
    const bool is_printable = std::ranges::all_of(one.endpoint, is_plain);
    if (!is_printable) throw_bad("an endpoint with bytes that are no printable ASCII");
    if (const std::string fault = fault_of(one.endpoint); !fault.empty())
      throw_bad(detail_text("a member's endpoint: %s", fault.c_str()));
    return one;
  }
  [[nodiscard]] std::string_view rest() { return text(rest_.size()); }
  void check_end() const {
    if (!rest_.empty()) throw_bad(detail_text("%zu bytes too many", rest_.size()));
  }
  static bool is_plain(char c) noexcept { return c >= ' ' && c <= '~'; }

 private:
  std::span<const std::byte> take(std::size_t size) {
    if (size > rest_.size())
      throw_bad(detail_text("the message ends %zu bytes early", size - rest_.size()));
    const auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }

  std::span<const std::byte> rest_;
};

/// \errors errc::refused, with the text of a refusal, of which printable characters are shown.
[[noreturn]] void throw_refusal(std::string_view why) {
  std::string text{why.substr(0, refusal_text_max)};
  std::ranges::replace_if(text, [](char c) { return !reader::is_plain(c); }, '?');
  throw_failure(errc::refused, "meeting", detail_text("rank 0 says: %s", text.c_str()));
}

}  // namespace

bytes encode(const arrival& from) {
  writer to{arrival_bytes_max};
  to.put(from.rank);
  to.put(from.size);
  to.put(from.member);
  return std::move(to).take();
}

bytes encode(const card& of) {
  writer to{arrival_bytes_max};
  to.put(of.name);
  to.put(of.member);
  return std::move(to).take();
}

bytes encode_refusal(std::string_view why) {
  writer to{arrival_bytes_max};
  to.put(std::uint8_t(kind::refusal));
  to.put(why.substr(0, refusal_text_max));
  return std::move(to).take();
}

bytes encode_part(const roster& all, std::size_t& first) {
  writer to{part_bytes_max};
  to.put(std::uint8_t(kind::part));
  to.put(all.name);
  std::size_t end = first;
  std::size_t left = part_bytes_max - to.size() - 2 * sizeof(std::uint32_t);
  for (; end < all.members.size() && size_of(all.members[end]) <= left; ++end)
    left -= size_of(all.members[end]);
  to.put(std::uint32_t(first));
  to.put(std::uint32_t(end - first));
  for (; first < end; ++first) to.put(all.members[first]);
  return std::move(to).take();
}

arrival decode_arrival(std::span<const std::byte> message) {
  reader from{message};
  arrival a;
  a.rank = from.number<std::uint32_t>();
  a.size = from.number<std::uint32_t>();
  a.member = from.member();
  from.check_end();
  return a;
}

card decode_card(std::span<const std::byte> message) {
  reader from{message};
  card c;
  c.name = from.name();
  c.member = from.member();
  from.check_end();
  return c;
}

void decode_part(std::span<const std::byte> message, roster& all, unsigned size) {
  reader from{message};
  const auto says = from.number<std::uint8_t>();
  if (says == std::uint8_t(kind::refusal)) throw_refusal(from.rest());
  if (says != std::uint8_t(kind::part)) throw_bad(detail_text("a message of kind %u", says));
  const group_name name = from.name();
  const auto first = from.number<std::uint32_t>();
  const auto count = from.number<std::uint32_t>();
  const std::size_t known = all.members.size();
  if (first != known || count == 0 || count > size - known)
    throw_bad(detail_text("ranks %u to %llu of %u, after %zu", first,
                          static_cast<unsigned long long>(first) + count, size, known));
  if (known > 0 && name != all.name) throw_bad("parts of two groups");
  all.name = name;
  for (std::uint32_t i = 0; i < count; ++i) all.members.push_back(from.member());
  from.check_end();
}

}  // namespace cordma::detail::meeting_frame
