#include "svg.hpp"

#include <array>
#include <cstdio>

namespace perf::svg {

std::string number(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string at(const char* x_name, double x, const char* y_name, double y) {
  std::array<char, 80> text;
  std::snprintf(text.data(), text.size(), R"( %s="%.1f" %s="%.1f")", x_name, x, y_name, y);
  return text.data();
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text,
                    const std::string& colour) {
  const std::string fill = colour == "#000" ? "" : " fill=\"" + colour + '"';
  return "<text" + at("x", x, "y", y) + " text-anchor=\"" + anchor + '"' + fill + '>' +
         escaped(text) + "</text>\n";
}

std::string line_from(double x1, double y1, double x2, double y2, const std::string& colour) {
  return "<line" + at("x1", x1, "y1", y1) + at("x2", x2, "y2", y2) + " stroke=\"" + colour +
         "\"/>\n";
}

const char* dashes(bool is_dashed) noexcept {
  return is_dashed ? R"( stroke-dasharray="5 4")" : "";
}

}  // namespace perf::svg
