#pragma once

#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <utility>

namespace cordma::test {

/// How handshakes ended, which is printed, and those that ended otherwise than they should.
class tally {
 public:
  explicit tally(std::string peer_link) : link_{std::move(peer_link)} {}
  ~tally() {
    std::cout << link_ << ":";
    for (const auto& [ending, count] : endings_) std::cout << ' ' << count << ' ' << ending << ';';
    std::cout << std::endl;
  }
  tally(const tally&) = delete;
  tally& operator=(const tally&) = delete;

  void add(const std::string& ending) { ++endings_[ending]; }
  /// `complaint`: empty if all is right. `what` has a `to_string`, which is called if it is not.
  void judge(const auto& what, const std::string& complaint) {
    constexpr std::size_t shown_max = 10;
    if (!complaint.empty() && ++wrong_ <= shown_max)
      complaints += what.to_string() + ": " + complaint + '\n';
  }

  std::string complaints;

 private:
  std::string link_;
  std::map<std::string, std::uint64_t> endings_;
  std::uint64_t wrong_ = 0;
};

}  // namespace cordma::test
