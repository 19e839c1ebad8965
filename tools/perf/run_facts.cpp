#include "run_facts.hpp"

#include "text.hpp"

#include <cordma/version.hpp>

#include <sys/utsname.h>

#include <array>
#include <ctime>

namespace perf {

run_facts read_facts(const std::string& device, const std::string& server) {
  run_facts facts{.device = device, .server = server};
  utsname system{};
  if (::uname(&system) == 0) {
    facts.host = system.nodename;
    facts.kernel = system.release;
  }
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  if (::gmtime_r(&now, &parts) != nullptr &&
      std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts) != 0) {
    facts.date = text.data();
  }
  append(facts.version, "%d.%d.%d", CORDMA_VERSION_MAJOR, CORDMA_VERSION_MINOR,
         CORDMA_VERSION_PATCH);
  return facts;
}

}  // namespace perf
