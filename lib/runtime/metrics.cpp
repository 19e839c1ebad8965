#include <cordma/runtime/metrics.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

namespace cordma {
namespace {

/// Checks a label's name. Prometheus' own rule differs only in allowing its reserved names.
void check(const metrics_label& label) {
  constexpr std::array<std::string_view, 4> used{"device", "port", "kind", "counter"};
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto is_allowed = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  const std::string_view name = label.name;
  if (name.empty()) return;
  const bool is_name = is_letter(name.front()) && !name.starts_with("__") &&
                       std::all_of(name.begin(), name.end(), is_allowed);
  if (is_name && std::find(used.begin(), used.end(), name) == used.end()) return;
  char text[120];
  std::snprintf(text, sizeof text, "'%.*s' cannot be the name of a label", int(name.size()),
                name.data());
  throw error{{.code = errc::out_of_range, .call = "to_prometheus", .detail = text}};
}

class exposition {
 public:
  explicit exposition(std::span<const labelled_metrics> all) : all_{all} {}

  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    (((((text_ += "# HELP cordma_") += name) += ' ') += help) += "\n# TYPE cordma_") += name;
    ((text_ += ' ') += type) += '\n';
  }
  void sample(const labelled_metrics& of, std::uint64_t value, const metrics_label& first = {},
              const metrics_label& second = {}) {
    (text_ += "cordma_") += name_;
    text_ += '{';
    label({"device", of.values.device.view()});
    for (const metrics_label& one : {first, second, of.label}) {
      if (one.name.empty()) continue;
      text_ += ',';
      label(one);
    }
    text_ += "} ";
    number(value);
    text_ += '\n';
  }
  /// Writes a family of one sample per runtime.
  template <class Get>
  void plain(std::string_view name, std::string_view type, std::string_view help, Get get) {
    family(name, type, help);
    for (const labelled_metrics& one : all_) sample(one, get(one.values));
  }
  template <class Get>
  void by_kind(std::string_view name, std::string_view type, std::string_view help, Get get) {
    family(name, type, help);
    for (const labelled_metrics& one : all_) {
      for (std::size_t kind = 0; kind < detail::request_kinds; ++kind) {
        sample(one, get(one.values.transfer.requests[kind]), {"kind", name_of(request_kind(kind))});
      }
    }
  }
  void rnr(std::string_view name, std::string_view help);
  std::string take() && { return std::move(text_); }

 private:
  void label(const metrics_label& of) {
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
  void number(std::uint64_t value) {
    std::array<char, 24> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    text_.append(digits.data(), end);
  }

  std::span<const labelled_metrics> all_;
  std::string_view name_;
  std::string text_;
};

/// Writes only the counters that the device has.
void exposition::rnr(std::string_view name, std::string_view help) {
  family(name, "counter", help);
  for (const labelled_metrics& one : all_) {
    std::array<char, 12> port;
    const auto end = std::to_chars(port.data(), port.data() + port.size(), one.values.port).ptr;
    const std::string_view number{port.data(), std::size_t(end - port.data())};
    for (std::size_t n = 0; n < verbs::rnr_counters::sources.size(); ++n) {
      if (!one.values.rnr.values[n]) continue;
      sample(one, *one.values.rnr.values[n], {"port", number},
             {"counter", verbs::rnr_counters::sources[n].name});
    }
  }
}

void write_transfer(exposition& to) {
  using of = const request_counters&;
  using all = const metrics&;
  to.by_kind("requests_posted_total", "counter", "Requests given to the device.",
             [](of r) { return r.posted; });
  to.by_kind("requests_completed_total", "counter", "Requests that the device completed.",
             [](of r) { return r.completed; });
  to.by_kind("requests_failed_total", "counter",
             "Requests that ended as failed or flushed, or with their queue pair.",
             [](of r) { return r.failed; });
  to.by_kind("requests_refused_total", "counter", "Requests that never reached the device.",
             [](of r) { return r.refused; });
  to.by_kind("requests_cancelled_total", "counter", "Waits for requests that a stop ended.",
             [](of r) { return r.cancelled; });
  to.by_kind("requests_in_flight", "gauge", "Requests that the device has.",
             [](of r) { return r.in_flight(); });
  to.plain("send_queue_stalls_total", "counter", "Requests that waited for room in a send queue.",
           [](all m) { return m.transfer.stalls; });
  to.plain("stream_credit_waits_total", "counter",
           "Messages that waited for the peer's credit, or for the send queue.",
           [](all m) { return m.transfer.credit_waits; });
  to.plain("rnr_exceeded_total", "counter",
           "Requests that failed because the peer had no receive for them.",
           [](all m) { return m.transfer.rnr_exceeded; });
  to.rnr("port_rnr_total", "Receiver-not-ready as the port counts it, for all programs.");
}

void write_completions(exposition& to) {
  using all = const metrics&;
  to.plain("completion_polls_total", "counter", "Polls of completion queues.",
           [](all m) { return m.completions.polls; });
  to.plain("completion_empty_polls_total", "counter", "Polls that found nothing.",
           [](all m) { return m.completions.empty_polls; });
  to.plain("completions_total", "counter", "Completion entries taken.",
           [](all m) { return m.completions.completions; });
  to.plain("completion_wake_ups_total", "counter", "Times a completion channel became readable.",
           [](all m) { return m.completions.wake_ups; });
  to.plain("completion_channel_events_total", "counter", "Events read from completion channels.",
           [](all m) { return m.completions.events; });
  to.plain("completion_arms_total", "counter", "Times a completion queue was armed.",
           [](all m) { return m.completions.arms; });
}

void write_executor(exposition& to) {
  using all = const metrics&;
  to.plain("executor_turns_total", "counter", "Turns of the executor.",
           [](all m) { return m.executor.turns; });
  to.plain("executor_waits_total", "counter", "Times the executor blocked in the kernel.",
           [](all m) { return m.executor.waits; });
  to.plain("executor_resumed_total", "counter", "Waiters resumed from the ready list.",
           [](all m) { return m.executor.ready_resumed; });
  to.plain("executor_posted_total", "counter", "Calls run for other threads.",
           [](all m) { return m.executor.posted; });
  to.plain("executor_kernel_enters_total", "counter", "System calls of the executor's io_uring.",
           [](all m) { return m.executor.enters; });
}

void write_memory(exposition& to) {
  using all = const metrics&;
  to.plain("memory_registered_bytes", "gauge", "Bytes registered in chunks.",
           [](all m) { return m.memory.registered_bytes; });
  to.plain("memory_registered_peak_bytes", "gauge", "The most that it ever was.",
           [](all m) { return m.memory.registered_bytes_peak; });
  to.plain("memory_external_bytes", "gauge", "Bytes registered that are the program's own.",
           [](all m) { return m.memory.external_bytes; });
  to.plain("memory_chunks", "gauge", "Chunks of registered memory.",
           [](all m) { return m.memory.chunks; });
  to.plain("memory_registrations_total", "counter", "Registrations made.",
           [](all m) { return m.memory.registrations; });
  to.plain("memory_registrations_failed_total", "counter", "Registrations that failed.",
           [](all m) { return m.memory.registrations_failed; });
  to.plain("memory_deregistrations_refused_total", "counter", "Chunks that had to be kept.",
           [](all m) { return m.memory.deregistrations_refused; });
}

}  // namespace

std::string to_prometheus(std::span<const labelled_metrics> all) {
  for (const labelled_metrics& one : all) check(one.label);
  exposition to{all};
  write_transfer(to);
  write_completions(to);
  write_executor(to);
  write_memory(to);
  return std::move(to).take();
}

std::string to_prometheus(const metrics& one, metrics_label label) {
  const labelled_metrics alone{one, label};
  return to_prometheus({&alone, 1});
}

}  // namespace cordma
