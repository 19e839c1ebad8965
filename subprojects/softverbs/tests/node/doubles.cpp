#include "node/doubles.hpp"

#include "node/upcalls.hpp"
#include "queue/completion_queue.hpp"

#include <chrono>

namespace softverbs {

namespace test {

seen& upcalls() {
  static seen all;
  return all;
}

void seen::reset() {
  const std::lock_guard lock{mutex};
  runs.clear();
  requests.clear();
  answers.clear();
  downs.clear();
  owed.clear();
  on_run = nullptr;
  echo = answers_are_lies = false;
  keep_payloads = true;
  ran_by = {};
}

bool seen::wait(const std::function<bool()>& what) {
  std::unique_lock lock{mutex};
  return changed.wait_for(lock, std::chrono::seconds{60}, what);
}

}  // namespace test

namespace {

test::seen::frame copy(link& from, const frame_header& header, const std::byte* payload) {
  test::seen::frame frame{header, {}, from.peer()};
  if (test::upcalls().keep_payloads) frame.payload.assign(payload, payload + header.payload_bytes);
  return frame;
}

}  // namespace

void run(node&, std::uint32_t qpn) noexcept {
  test::seen& all = test::upcalls();
  std::function<void(std::uint32_t)> then;
  {
    const std::lock_guard lock{all.mutex};
    ++all.runs[qpn];
    all.ran_by = std::this_thread::get_id();
    then = all.on_run;
  }
  if (then) then(qpn);
  all.changed.notify_all();
}

bool on_request(node& local_node, link& from, const frame_header& header,
                const std::byte* payload) noexcept {
  test::seen& all = test::upcalls();
  {
    const std::lock_guard lock{all.mutex};
    all.requests.push_back(copy(from, header, payload));
    if (all.echo) {
      const std::uint32_t local =
          std::uint32_t{local_node.slot()} << index_bits | (header.destination_qpn & index_mask);
      all.owed.emplace_back(local, header.psn);
      from.answer_later(local);
    }
  }
  all.changed.notify_all();
  return true;
}

bool on_answer(node&, link& from, const frame_header& header, const std::byte* payload) noexcept {
  test::seen& all = test::upcalls();
  const std::lock_guard lock{all.mutex};
  all.answers.push_back(copy(from, header, payload));
  all.changed.notify_all();
  return !all.answers_are_lies;
}

bool send_answers(node&, link& to, std::uint32_t local_qpn) noexcept {
  test::seen& all = test::upcalls();
  const std::lock_guard lock{all.mutex};
  for (auto one = all.owed.begin(); one != all.owed.end();) {
    if (one->first != local_qpn) {
      ++one;
      continue;
    }
    frame_header header{};
    header.kind = frame_kind::ack;
    header.psn = one->second;
    header.source_qpn = local_qpn;
    if (to.reserve(header, 0).result != sent::yes) return false;
    to.commit();
    one = all.owed.erase(one);
  }
  return true;
}

void on_relay_link_down(node&, const link&, std::uint32_t, std::uint32_t) noexcept {}

void on_link_down(node&, const link&, std::uint32_t, std::uint32_t local_qpn) noexcept {
  test::seen& all = test::upcalls();
  const std::lock_guard lock{all.mutex};
  all.downs.push_back(local_qpn);
  all.changed.notify_all();
}

/// The node's tests have no completions.
void raise_cq_error(completion_queue&) noexcept {}

}  // namespace softverbs
