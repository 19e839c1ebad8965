#include <cordma/runtime/metrics.hpp>

#include "base/failures.hpp"

#include <algorithm>
#include <array>
#include <functional>

namespace cordma {
namespace {

using label_pair = labelled_metrics::further_label;

/// Checks a label's name. Prometheus' own rule differs only in allowing its reserved names.
void check(const label_pair& label) {
  constexpr std::array<std::string_view, 5> used{"device", "port", "kind", "counter", "backend"};
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto is_allowed = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  const std::string_view name = label.name;
  if (name.empty()) return;
  const bool is_name = is_letter(name.front()) && !name.starts_with("__") &&
                       std::all_of(name.begin(), name.end(), is_allowed);
  if (is_name && std::find(used.begin(), used.end(), name) == used.end()) return;
  detail::throw_failure(
      errc::out_of_range, "to_prometheus",
      detail::detail_text("'%.*s' cannot be the name of a label", int(name.size()), name.data()));
}

class exposition {
 public:
  explicit exposition(std::span<const labelled_metrics> all) : all_{all} {}

  /// Begins a family: a counter if its name ends in "_total", else a gauge.
  void family(std::string_view name, std::string_view help) {
    name_ = name;
    const std::string_view type = name.ends_with("_total") ? "counter" : "gauge";
    (((((text_ += "# HELP cordma_") += name) += ' ') += help) += "\n# TYPE cordma_") += name;
    ((text_ += ' ') += type) += '\n';
  }
  void sample(const labelled_metrics& of, std::uint64_t value, const label_pair& first = {},
              const label_pair& second = {}) {
    (text_ += "cordma_") += name_;
    text_ += '{';
    label({"device", of.values.device.view()});
    for (const label_pair& one : {first, second, of.label}) {
      if (one.name.empty()) continue;
      text_ += ',';
      label(one);
    }
    ((text_ += "} ") += std::to_string(value)) += '\n';
  }
  /// Writes a family of one sample per runtime.
  template <class Part>
  void plain(std::string_view name, std::string_view help, Part metrics::* part,
             std::uint64_t Part::* value) {
    family(name, help);
    for (const labelled_metrics& one : all_) sample(one, one.values.*part.*value);
  }
  /// Writes a family of one sample per runtime and kind of request.
  template <class Get>
  void by_kind(std::string_view name, std::string_view help, Get get) {
    family(name, help);
    for (const labelled_metrics& one : all_) {
      for (std::size_t kind = 0; kind < detail::request_kinds; ++kind) {
        sample(one, std::invoke(get, one.values.transfer.requests[kind]),
               {"kind", name_of(request_kind(kind))});
      }
    }
  }
  void rnr(std::string_view name, std::string_view help);
  [[nodiscard]] std::span<const labelled_metrics> all() const noexcept { return all_; }
  std::string take() && { return std::move(text_); }

 private:
  void label(const label_pair& of) {
    (text_ += of.name) += "=\"";
    for (const char c : of.value) {
      switch (c) {
        case '\\': text_ += "\\\\"; break;
        case '"': text_ += "\\\""; break;
        case '\n': text_ += "\\n"; break;
        default: text_ += c;
      }
    }
    text_ += '"';
  }
  std::span<const labelled_metrics> all_;
  std::string_view name_;
  std::string text_;
};

/// Writes only the counters that the device has.
void exposition::rnr(std::string_view name, std::string_view help) {
  family(name, help);
  for (const labelled_metrics& one : all_) {
    const std::string port = std::to_string(one.values.port);
    for (std::size_t n = 0; n < verbs::rnr_counters::sources.size(); ++n) {
      if (!one.values.rnr.values[n]) continue;
      sample(one, *one.values.rnr.values[n], {"port", port},
             {"counter", verbs::rnr_counters::sources[n].name});
    }
  }
}

/// Writes numbers of one part of the metrics.
template <class Part>
struct section {
  void operator()(std::string_view name, std::string_view help, std::uint64_t Part::* value) const {
    to.plain(name, help, part, value);
  }
  exposition& to;
  Part metrics::* part;
};

void write_transfer(exposition& to) {
  using of = request_counters;
  to.by_kind("requests_posted_total", "Requests given to the device.", &of::posted);
  to.by_kind("requests_completed_total", "Requests that the device completed.", &of::completed);
  to.by_kind("requests_failed_total",
             "Requests that ended as failed or flushed, or with their queue pair.", &of::failed);
  to.by_kind("requests_refused_total", "Requests that never reached the device.", &of::refused);
  to.by_kind("requests_cancelled_total", "Waits for requests that a stop ended.", &of::cancelled);
  to.by_kind("requests_in_flight", "Requests that the device has.", &of::in_flight);
  using all = transfer_counters;
  const section<all> plain{to, &metrics::transfer};
  plain("send_queue_stalls_total", "Requests that waited for room in a send queue.", &all::stalls);
  plain("stream_credit_waits_total",
        "Messages that waited for the peer's credit, or for the send queue.", &all::credit_waits);
  plain("rnr_exceeded_total", "Requests that failed because the peer had no receive for them.",
        &all::rnr_exceeded);
  to.rnr("port_rnr_total", "Receiver-not-ready as the port counts it, for all programs.");
}

void write_completions(exposition& to) {
  using of = completion_counters;
  const section<of> plain{to, &metrics::completions};
  plain("completion_polls_total", "Polls of completion queues.", &of::polls);
  plain("completion_empty_polls_total", "Polls that found nothing.", &of::empty_polls);
  plain("completions_total", "Completion entries taken.", &of::completions);
  plain("completion_wake_ups_total", "Times a completion channel became readable.", &of::wake_ups);
  plain("completion_channel_events_total", "Events read from completion channels.", &of::events);
  plain("completion_arms_total", "Times a completion queue was armed.", &of::arms);
}

void write_executor(exposition& to) {
  using of = executor_counters;
  const section<of> plain{to, &metrics::executor};
  plain("executor_iterations_total", "Event-loop iterations.", &of::iterations);
  plain("executor_waits_total", "Times the executor blocked in the kernel.", &of::waits);
  plain("executor_yields_total", "Times the executor let other threads run while it spun.",
        &of::yields);
  plain("executor_resumed_total", "Waiters resumed from the ready list.", &of::ready_resumed);
  plain("executor_posted_total", "Calls run for other threads.", &of::posted);
  plain("executor_kernel_enters_total", "System calls of the executor's reactor.", &of::enters);
  to.family("executor_info", "What the executor waits with.");
  for (const labelled_metrics& one : to.all()) to.sample(one, 1, {"backend", one.values.backend});
}

void write_memory(exposition& to) {
  using of = mr_allocator_counters;
  const section<of> plain{to, &metrics::memory};
  plain("memory_registered_bytes", "Bytes registered in chunks.", &of::registered_bytes);
  plain("memory_registered_peak_bytes", "The most that it ever was.", &of::registered_bytes_peak);
  plain("memory_external_bytes", "Bytes registered that are the program's own.",
        &of::external_bytes);
  plain("memory_cached_bytes", "Bytes of registrations that the cache keeps.", &of::cached_bytes);
  plain("memory_chunks", "Chunks of registered memory.", &of::chunks);
  plain("memory_registrations_total", "Registrations made.", &of::registrations);
  plain("memory_registrations_failed_total", "Registrations that failed.",
        &of::registrations_failed);
  plain("memory_deregistrations_refused_total", "Chunks that had to be kept.",
        &of::deregistrations_refused);
  plain("memory_cache_hits_total", "Registrations found in the cache.", &of::cache_hits);
  plain("memory_cache_misses_total", "Registrations not found in the cache.", &of::cache_misses);
  plain("memory_cache_evictions_total", "Cached registrations that went for want of room.",
        &of::cache_evictions);
}

void write_datagrams(exposition& to) {
  using of = datagram_counters;
  const section<of> plain{to, &metrics::datagrams};
  plain("datagram_routes_found_total", "Datagrams that found their route.", &of::routes_found);
  plain("datagram_routes_made_total", "Address handles that were made.", &of::routes_made);
  plain("datagram_routes_given_up_total", "Address handles that gave way to others.",
        &of::routes_given_up);
  plain("datagram_routes_failed_total", "Searches for a route that found none.",
        &of::routes_failed);
  plain("datagram_groups_joined_total", "Multicast groups that were joined.", &of::groups_joined);
  to.family("port_qkey_violations_total",
            "Datagrams with a wrong Q_Key as the port counts them, for all programs.");
  for (const labelled_metrics& one : to.all()) {
    const std::string port = std::to_string(one.values.port);
    if (const auto count = one.values.qkey_violations) to.sample(one, *count, {"port", port});
  }
}

void write_connections(exposition& to) {
  using of = metrics::connection_counters;
  const section<of> plain{to, &metrics::connections};
  plain("connections_made_total", "Connections whose handshake succeeded.", &of::made);
  plain("connections_lost_total", "Connections that ended without a goodbye.", &of::lost);
  plain("connections_open", "Connections that have not ended.", &of::open);
}

void write_leases(exposition& to) {
  using of = metrics::lease_counters;
  const section<of> plain{to, &metrics::leases};
  plain("leases_lent_total", "Leases prepared for peers.", &of::lent);
  plain("leases_borrowed_total", "Leases that peers granted.", &of::borrowed);
  plain("leases_refused_total", "Requests for memory that were refused.", &of::refused);
  plain("leases_expired_total", "Leases that a peer had not returned at their end.", &of::expired);
  plain("leases_open", "Leases that peers have.", &of::open);
  plain("leases_open_bytes", "Bytes of leases that peers have.", &of::open_bytes);
  plain("leases_held", "Leases that peers granted and that are not returned.", &of::held);
}

}  // namespace

std::string to_prometheus(std::span<const labelled_metrics> all) {
  for (const labelled_metrics& one : all) check(one.label);
  exposition to{all};
  write_transfer(to);
  write_completions(to);
  write_executor(to);
  write_memory(to);
  write_datagrams(to);
  write_connections(to);
  write_leases(to);
  return std::move(to).take();
}

std::string to_prometheus(const metrics& one, labelled_metrics::further_label label) {
  const labelled_metrics single{one, label};
  return to_prometheus({&single, 1});
}

}  // namespace cordma
