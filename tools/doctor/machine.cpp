#include "machine.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <system_error>

namespace doctor {

namespace fs = std::filesystem;

fs::path machine::at(const std::string& path) const {
  return root_ / fs::path{path}.relative_path();
}

bool machine::has(const std::string& path) const {
  std::error_code none;
  return fs::exists(at(path), none);
}

std::optional<std::string> machine::bytes(const std::string& path) const {
  std::error_code none;
  if (fs::is_directory(at(path), none)) return std::nullopt;
  std::ifstream file{at(path), std::ios::binary};
  if (!file) return std::nullopt;
  std::string all(bytes_max, '\0');
  file.read(all.data(), std::streamsize(all.size()));
  all.resize(std::size_t(file.gcount()));
  if (file.bad()) return std::nullopt;
  return all;
}

std::optional<std::string> machine::text(const std::string& path) const {
  std::optional<std::string> all = bytes(path);
  if (all) all->erase(all->find_last_not_of(" \t\n") + 1);
  return all;
}

std::optional<std::int64_t> machine::number(const std::string& path) const {
  const std::optional<std::string> content = text(path);
  if (!content) return std::nullopt;
  try {
    return std::stoll(*content, nullptr, 0);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::vector<std::string> machine::names(const std::string& folder) const {
  std::vector<std::string> all;
  std::error_code none;
  for (const fs::directory_entry& one : fs::directory_iterator{at(folder), none}) {
    all.push_back(one.path().filename().string());
  }
  std::ranges::sort(all);
  return all;
}

std::string machine::link_name(const std::string& path) const {
  std::error_code none;
  return fs::read_symlink(at(path), none).filename().string();
}

std::optional<std::string> machine::field(const std::string& path, const std::string& name) const {
  std::istringstream lines{text(path).value_or("")};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + ':')) continue;
    const std::size_t begin = line.find_first_not_of(" \t", name.size() + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return std::nullopt;
}

}  // namespace doctor
