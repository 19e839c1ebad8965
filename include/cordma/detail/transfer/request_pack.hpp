#pragma once

#include <cordma/transfer/work_request.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cordma {

/// What is known when it is compiled of requests that are posted together.
template <class... Requests>
struct request_pack {
  static constexpr std::size_t count = sizeof...(Requests);
  static_assert(count <= std::numeric_limits<std::uint16_t>::max(), "too many for one doorbell");
  static_assert((std::is_trivially_destructible_v<Requests> && ...));
  static constexpr bool is_batch = count > 1;
  static constexpr auto each = std::make_index_sequence<count>{};
  static constexpr std::array<request_kind, count> kinds{Requests::kind...};
  static constexpr bool has_atomic = std::ranges::count(kinds, request_kind::atomic) > 0;
  template <class Request>
  static constexpr std::size_t sge_count() noexcept {
    if constexpr (requires(Request r) { r.local; }) {
      return std::tuple_size_v<decltype(Request::local.slices)>;
    } else {
      return 1;
    }
  }
  static constexpr std::size_t sges_max = std::max({std::size_t{1}, sge_count<Requests>()...});

  using first = std::tuple_element_t<0, std::tuple<Requests...>>;
  /// As its kind is described once for all: an atomic has one of the queue's. It can go with
  /// others.
  static constexpr bool has_one_slice =
      !is_batch && kinds[0] <= request_kind::atomic && sge_count<first>() == 1;

  static constexpr bool is_uniform = is_batch && (std::is_same_v<Requests, first> && ...);
  /// Of one type it is an array of pointers, to go through.
  using references = std::conditional_t<is_uniform, std::array<const first*, count>,
                                        std::tuple<const Requests&...>>;
  [[nodiscard, gnu::always_inline]] static references refer(const Requests&... all) noexcept {
    if constexpr (is_uniform) {
      return {&all...};
    } else {
      return references{all...};
    }
  }
  [[nodiscard, gnu::always_inline]] static references refer(
      const std::tuple<Requests...>& all) noexcept {
    return std::apply([](const auto&... one) { return refer(one...); }, all);
  }
  /// Calls `f` with each and its number, as long as it says true. Whether it always has.
  template <class F>
  [[gnu::always_inline]] static bool all_of(const references& all, F f) noexcept {
    if constexpr (is_uniform) {
      for (std::size_t i = 0; i < count; ++i)
        if (!f(*all[i], i)) return false;
      return true;
    } else {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return (f(std::get<I>(all), I) && ...);
      }(each);
    }
  }
  using shapes = std::array<request_shape, count>;
  /// Of one its value; of several a tuple of them.
  using value_type =
      std::conditional_t<is_batch, std::tuple<typename Requests::value_type...>,
                         std::tuple_element_t<0, std::tuple<typename Requests::value_type...>>>;
  /// The same, a word each, as they become known.
  using words = std::array<std::uint64_t, count>;

  /// Of a batch only the last needs an entry of its own.
  template <class Request>
  [[nodiscard, gnu::always_inline]] static request_shape shape(const Request& request,
                                                               std::size_t i) noexcept {
    request_shape its = request.shape();
    if constexpr (is_batch) its.set_signaled(i + 1 == count);
    return its;
  }
  [[nodiscard]] static shapes shapes_of(const references& all) noexcept {
    shapes each_shape;
    all_of(all, [&](const auto& request, std::size_t i) {
      each_shape[i] = shape(request, i);
      return true;
    });
    return each_shape;
  }
  /// What a request gives when it has succeeded, but for an atomic.
  template <class Request>
  [[nodiscard, gnu::always_inline]] static std::uint64_t value_to_be(
      const Request& request) noexcept {
    if constexpr (requires { request.compare_or_add; }) {
      return 0;
    } else if constexpr (requires { request.result(); }) {
      return request.result();
    } else {
      std::size_t bytes = 0;
      for (const const_local_mr_slice& slice : request.local.slices) bytes += slice.size_bytes();
      return bytes;
    }
  }
  [[nodiscard, gnu::always_inline]] static value_type values(const words& of) noexcept {
    return [&of]<std::size_t... I>(std::index_sequence<I...>) {
      return value_type{typename Requests::value_type(of[I])...};
    }(each);
  }
};

}  // namespace cordma
