#include "printers.hpp"

#include "../perf/text.hpp"

#include <array>

namespace doctor {
namespace {

using perf::append;
using perf::json_string;

constexpr std::array severities{severity::error, severity::warning, severity::note, severity::ok};

/// A text may have several lines, which stand below each other.
std::string indented(std::string_view label, std::string_view content) {
  std::string out = std::string(9, ' ').append(label);
  for (const char c : content) {
    out += c;
    if (c == '\n') out.append(9 + label.size(), ' ');
  }
  return out + '\n';
}

std::string object(const finding& f) {
  return "    {\"check\": " + json_string(f.check) +
         ", \"severity\": " + json_string(to_string(f.severity)) +
         ",\n     \"value\": " + json_string(f.value) + ",\n     \"why\": " + json_string(f.why) +
         ",\n     \"mend\": " + (f.mend.empty() ? "null" : json_string(f.mend)) + "}";
}

}  // namespace

std::string text(const finding& f, bool is_verbose) {
  std::string out;
  append(out, "%-8s %-24s ", to_string(f.severity), f.check.c_str());
  out += f.value + '\n';
  const bool says_why = is_verbose || f.severity != severity::ok;
  if (says_why && !f.why.empty()) out += indented("why:  ", f.why);
  if (!f.mend.empty()) out += indented("mend: ", f.mend);
  return out;
}

std::string summary(const report& r) {
  std::string out;
  for (const severity how : severities) {
    append(out, "%s%zu %s", out.empty() ? "" : ", ", r.count(how), to_string(how));
  }
  return out + '\n';
}

std::string json(const report& r, std::string_view device, std::string_view peer) {
  std::string out = "{\n  \"device\": " + (device.empty() ? "null" : json_string(device)) +
                    ",\n  \"peer\": " + (peer.empty() ? "null" : json_string(peer)) +
                    ",\n  \"worst\": " + json_string(to_string(r.worst())) + ",\n  \"findings\": [";
  for (const finding& f : r.all()) {
    out += &f == &r.all().front() ? "\n" : ",\n";
    out += object(f);
  }
  return out + "\n  ]\n}\n";
}

}  // namespace doctor
