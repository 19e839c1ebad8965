#pragma once

#include <string>

// Pieces of a drawing: SVG elements as text.
namespace perf::svg {

/// Gives four digits at most.
std::string number(double value);
/// Gives text that is safe within XML.
std::string escaped(const std::string& text);
/// Gives two attributes with positions or lengths.
std::string at(const char* x_name, double x, const char* y_name, double y);
std::string text_at(double x, double y, const std::string& anchor, const std::string& text,
                    const std::string& colour = "#000");
std::string line_from(double x1, double y1, double x2, double y2, const std::string& colour);
/// Gives an attribute for a stroke, if it is dashed.
const char* dashes(bool is_dashed) noexcept;

}  // namespace perf::svg
