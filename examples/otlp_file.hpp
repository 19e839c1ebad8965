#pragma once

#include <cordma/cordma.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>

/// Appends spans to a file, as OpenTelemetry's collector reads them (its receiver `otlpjsonfile`):
/// each line is an `ExportTraceServiceRequest` of OTLP, in JSON. Several processes can write to one
/// file. Lines are kept in memory up to 64 KiB, and written at the latest when this is destroyed. A
/// service that has many spans better sends them from another thread.
/// \thread one.
class otlp_file final : public cordma::rpc::tracer {
 public:
  /// `clock` is the executor of the clients and servers that have this tracer.
  otlp_file(const std::string& path, std::string service, const cordma::executor& clock)
      : service_{std::move(service)},
        clock_{clock},
        file_{::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)} {
    if (!file_.is_open()) throw cordma::error{cordma::errno_failure(errno, "open", {}, path)};
  }
  ~otlp_file() override { flush(); }

  /// Spans that were not written. An errno says why.
  [[nodiscard]] unsigned lost() const noexcept { return lost_; }

  void begin(span&) noexcept override {}  // Records what the parent's flag says.
  void end(const span& s) noexcept override try {
    std::string attributes =
        attribute("rpc.system", "cordma") + ',' + attribute("rpc.method", s.method);
    if (s.peer != nullptr) attributes += ',' + peer(*s.peer);
    if (s.outcome) attributes += ',' + attribute("error.type", s.outcome.message());
    if (s.repeats != 0) attributes += ',' + number("cordma.repeats", s.repeats);
    const std::string_view name = s.method.empty() ? "unknown method" : s.method;
    write({s.kind == span_kind::server ? 2 : 3, name, s.context, s.parent_span_id, s.start, s.end,
           bool(s.outcome), s.text},
          attributes);
  } catch (const std::exception&) {
    ++lost_;  // No memory.
  }

  /// A piece of the program's own work, which began at `start` and ends now. `context` is that of
  /// the calls that belong to it.
  void add(std::string_view name, const cordma::rpc::trace_context& context,
           cordma::time_point start) {
    constexpr int internal = 1;  // OTLP's SPAN_KIND_INTERNAL.
    write({internal, name, context, {}, start, clock_.now(), false, {}}, "");
  }

  void flush() noexcept {
    std::string_view rest = lines_;
    while (!rest.empty()) {
      const ssize_t n = ::write(file_.get(), rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        lost_ += in_lines_;
        break;
      }
      rest.remove_prefix(std::size_t(n));
    }
    lines_.clear();
    in_lines_ = 0;
  }

 private:
  static constexpr std::size_t lines_max_bytes = 64 << 10;

  struct record {
    int kind;
    std::string_view name;
    cordma::rpc::trace_context context;
    std::array<std::byte, 8> parent;
    cordma::time_point start, end;
    bool has_failed;
    std::string_view text;
  };

  void write(const record& r, const std::string& attributes) {
    std::string line = R"({"resourceSpans":[{"resource":{"attributes":[)" +
                       attribute("service.name", service_) +
                       R"(]},"scopeSpans":[{"scope":{"name":"cordma"},"spans":[{"traceId":)" +
                       hex(r.context.trace_id) + R"(,"spanId":)" + hex(r.context.span_id);
    if (r.parent != std::array<std::byte, 8>{}) line += R"(,"parentSpanId":)" + hex(r.parent);
    line += R"(,"flags":)" + std::to_string(r.context.flags) + R"(,"name":)" + quoted(r.name) +
            R"(,"kind":)" + std::to_string(r.kind) + R"(,"startTimeUnixNano":)" +
            unix_time(r.start) + R"(,"endTimeUnixNano":)" + unix_time(r.end) +
            R"(,"attributes":[)" + attributes + R"(],"status":{)";
    if (r.has_failed) line += R"("code":2,"message":)" + quoted(r.text);
    lines_ += line + "}}]}]}]}\n";
    ++in_lines_;
    if (lines_.size() >= lines_max_bytes) flush();
  }

  /// The executor's clock counts from the boot, say.
  [[nodiscard]] std::string unix_time(cordma::time_point t) const {
    const std::chrono::nanoseconds since_epoch = t.time_since_epoch() + from_epoch_;
    return '"' + std::to_string(since_epoch.count()) + '"';
  }
  static std::string hex(std::span<const std::byte> id) {
    std::string text = "\"";
    std::array<char, 3> digits;
    for (const std::byte b : id) {
      std::snprintf(digits.data(), digits.size(), "%02x", unsigned(b));
      text += digits.data();
    }
    return text + '"';
  }
  /// JSON is UTF-8, which a peer's text may not be: other than ASCII becomes a question mark.
  static std::string quoted(std::string_view text) {
    std::string json = "\"";
    std::array<char, 7> code;
    for (const char c : text) {
      const auto value = static_cast<unsigned char>(c);
      if (value < 0x20 || value == 0x7f) {
        std::snprintf(code.data(), code.size(), "\\u%04x", unsigned(value));
        json += code.data();
      } else if (value > 0x7f) {
        json += '?';
      } else {
        if (c == '"' || c == '\\') json += '\\';
        json += c;
      }
    }
    return json + '"';
  }
  static std::string attribute(std::string_view key, std::string_view text) {
    return R"({"key":)" + quoted(key) + R"(,"value":{"stringValue":)" + quoted(text) + "}}";
  }
  static std::string number(std::string_view key, unsigned value) {  // A string: it has 64 bits.
    return R"({"key":)" + quoted(key) + R"(,"value":{"intValue":")" + std::to_string(value) +
           "\"}}";
  }
  static std::string peer(const cordma::socket_address& address) {
    std::string host = address.to_string();
    if (address.is_unix()) return attribute("network.peer.address", host);
    host.resize(host.rfind(':'));
    if (address.is_ipv6()) host = host.substr(1, host.size() - 2);  // Without the brackets.
    return attribute("network.peer.address", host) + ',' +
           number("network.peer.port", address.port());
  }

  const std::string service_;
  const cordma::executor& clock_;
  const std::chrono::nanoseconds from_epoch_ =
      std::chrono::nanoseconds{std::chrono::system_clock::now().time_since_epoch()} -
      clock_.now().time_since_epoch();
  cordma::unique_fd file_;
  std::string lines_;
  unsigned in_lines_ = 0;
  unsigned lost_ = 0;
};
