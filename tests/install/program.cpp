// A user's program: built outside the tree, against what was installed or as a subproject's user.
#include <cordma/base/error.hpp>
#include <cordma/version.hpp>

#include <cstdio>

int main() {
  const cordma::failure lost{.code = cordma::errc::disconnected, .call = "poll"};
  std::printf("cordma %d: %s\n", CORDMA_VERSION_MAJOR, lost.to_string().c_str());
  return lost.remedy() == cordma::remedy_kind::reconnect ? 0 : 1;
}
