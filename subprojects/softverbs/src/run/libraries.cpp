#include "run/libraries.hpp"

#include "run/settings.hpp"

#include <filesystem>
#include <stdexcept>

namespace softverbs::run {

namespace fs = std::filesystem;

libraries find_libraries() {
  const fs::path own = fs::read_symlink("/proc/self/exe").parent_path();
  // An installed tree may have been moved.
  const fs::path beside = fs::path{SOFTVERBS_LIBDIR}.lexically_relative(SOFTVERBS_BINDIR);
  const fs::path folders[] = {own, (own / beside).lexically_normal()};
  for (const fs::path& folder : folders) {
    const libraries found{folder / "libsoftverbs.so.0", folder / "libsoftverbs_cm.so.0"};
    if (!fs::exists(found.verbs) || !fs::exists(found.rdma_cm)) continue;
    if (found.verbs.find_first_of(" :") != std::string::npos)
      throw std::runtime_error{folder.string() +
                               ": a path with a space or a colon cannot stand in LD_PRELOAD"};
    return found;
  }
  throw std::runtime_error{"libsoftverbs.so.0 and libsoftverbs_cm.so.0 are neither in " +
                           folders[0].string() + " nor in " + folders[1].string()};
}

std::string preload_value(const libraries& found) {
  const std::string before = environment("LD_PRELOAD");
  return (before.empty() ? "" : before + ":") + found.rdma_cm + ":" + found.verbs;
}

}  // namespace softverbs::run
