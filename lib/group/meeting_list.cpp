#include "meeting_host.hpp"
#include "meeting_kinds.hpp"
#include "meeting_member.hpp"

#include "base/failures.hpp"

#include <cordma/runtime/runtime.hpp>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <unordered_map>
#include <utility>

namespace cordma::detail {
namespace {

constexpr std::uint64_t second_seed = 0x9e3779b97f4a7c15;
constexpr std::string_view blanks = " \t\r";

/// Ranks that all know where each of them listens: no rank asks another.
class list_meeting final : public meeting_kind {
 public:
  list_meeting(std::vector<endpoint> members, unsigned rank)
      : members_{std::move(members)}, rank_{rank} {}

  [[nodiscard]] unsigned size() const noexcept override { return unsigned(members_.size()); }
  task<endpoint> where_to_listen(runtime&) override { co_return members_[rank_]; }
  task<roster> meet(runtime&, const group_options&, group_member) override {
    roster all{.rank = rank_, .may_come_late = true};
    std::string text;
    for (const endpoint& one : members_) {
      all.members.push_back({one.to_string(), host_of(one)});
      text += all.members.back().endpoint + '\n';
    }
    const std::uint64_t halves[2] = {hash_of(text), hash_of(text, second_seed)};
    static_assert(sizeof halves == sizeof all.name);
    std::memcpy(all.name.data(), halves, sizeof halves);
    co_return all;
  }

 private:
  /// Each rank must find the same, so the boot of one's own host says nothing here.
  static std::uint64_t host_of(const endpoint& member) {
    return hash_of(is_this_host(member) ? "localhost" : member.host);
  }

  const std::vector<endpoint> members_;
  const unsigned rank_;
};

std::string_view without_blanks(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

}  // namespace

std::shared_ptr<meeting_kind> make_list_meeting(std::vector<endpoint> members, unsigned rank) {
  constexpr const char* call = "meeting::by_list";
  check_rank(call, rank, members.size());
  std::unordered_map<std::string, unsigned> seen;
  for (unsigned i = 0; i < members.size(); ++i) {
    const std::string text = members[i].to_string();
    if (const std::string fault = fault_of(text); !fault.empty())
      throw_errno(EINVAL, call, detail_text("rank %u: %s", i, fault.c_str()));
    if (const auto [other, is_new] = seen.try_emplace(text, i); !is_new)
      throw_errno(EINVAL, call,
                  detail_text("ranks %u and %u have the same endpoint, '%s'", other->second, i,
                              text.c_str()));
  }
  return std::make_shared<list_meeting>(std::move(members), rank);
}

std::vector<endpoint> read_list(const std::string& path) {
  constexpr const char* call = "meeting::by_file";
  errno = 0;
  std::ifstream file{path};
  if (!file) throw_errno(errno != 0 ? errno : ENOENT, call, path);
  std::vector<endpoint> members;
  std::string line;
  for (unsigned number = 1; std::getline(file, line); ++number) {
    const std::string_view text = without_blanks(std::string_view{line}.substr(0, line.find('#')));
    if (text.empty()) continue;
    if (members.size() == ranks_max)
      throw_errno(EINVAL, call,
                  detail_text("%s:%u: more than %u ranks", path.c_str(), number, ranks_max));
    const std::string fault = fault_of(text);
    if (!fault.empty())
      throw_errno(EINVAL, call, detail_text("%s:%u: %s", path.c_str(), number, fault.c_str()));
    members.emplace_back(text);
  }
  if (file.bad()) throw_errno(errno != 0 ? errno : EIO, call, path);
  if (members.empty())
    throw_errno(EINVAL, call, path + ": no endpoint; write one a line, rank 0 first");
  return members;
}

}  // namespace cordma::detail
