#include "pmix_client.hpp"

#include "base/failures.hpp"
#include "meeting_member.hpp"
#include "pmix_library.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <list>
#include <optional>
#include <string>

namespace cordma::detail {
namespace {

/// Events that tell of a rank's death; a rank that ends as it should is none.
constexpr std::array<pmix_status_t, 5> deaths{PMIX_ERR_PROC_ABORTED, PMIX_ERR_PROC_ABORTED_BY_SIG,
                                              PMIX_ERR_PROC_KILLED_BY_CMD,
                                              PMIX_ERR_PROC_TERM_WO_SYNC, PMIX_ERR_LOST_CONNECTION};

/// An answer of PMIx, from a thread of its own.
class answer {
 public:
  void come(pmix_status_t status, const pmix_value_t* value = nullptr) noexcept {
    const std::lock_guard lock{mutex_};
    status_ = status;
    if (value != nullptr) take(*value);
    has_come_ = true;
    changed_.notify_all();
  }
  /// \errors errc::timed_out: stopped before.
  pmix_status_t wait(const std::stop_token& stop) {
    std::unique_lock lock{mutex_};
    if (!changed_.wait(lock, stop, [this] { return has_come_; }))
      throw_failure(errc::timed_out, "PMIx", {});
    return status_;
  }
  [[nodiscard]] const std::optional<unsigned>& number() const noexcept { return number_; }
  [[nodiscard]] const std::optional<pmix_client::bytes>& bytes() const noexcept { return bytes_; }

 private:
  void take(const pmix_value_t& value) noexcept {
    if (value.type == PMIX_UINT32) number_ = value.data.uint32;
    const pmix_byte_object_t& object = value.data.bo;
    if (value.type != PMIX_BYTE_OBJECT || object.size > bytes_max) return;
    const auto* const first = reinterpret_cast<const std::byte*>(object.bytes);
    try {
      bytes_.emplace(first, first + object.size);
    } catch (const std::bad_alloc&) {
      status_ = PMIX_ERR_NOMEM;
    }
  }

 public:
  std::size_t bytes_max = 0;

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool has_come_ = false;
  pmix_status_t status_ = PMIX_ERROR;
  std::optional<unsigned> number_;
  std::optional<pmix_client::bytes> bytes_;
};

void on_op(pmix_status_t status, void* of) { static_cast<answer*>(of)->come(status); }
void on_value(pmix_status_t status, pmix_value_t* value, void* of) {
  static_cast<answer*>(of)->come(status, value);
}
void on_registered(pmix_status_t status, std::size_t, void* of) {
  static_cast<answer*>(of)->come(status);
}

const pmix_library& loaded_library() {
  const pmix_library* const library = pmix_library::load();
  if (library != nullptr) return *library;
  throw_failure(errc::not_supported, "dlopen", pmix_library::why_not());
}

}  // namespace

class pmix_client::session {
 public:
  explicit session(const pmix_library& library) : pmix_{library} { current = this; }
  ~session() {
    current = nullptr;
    if (is_connected_ && is_own()) pmix_.finalize(nullptr, 0);
  }
  /// Returns false in the child of a fork, which has neither the threads nor the connection.
  [[nodiscard]] bool is_own() const noexcept { return process_ == ::getpid(); }

  position begin(const std::stop_token& stop) {
    const std::lock_guard lock{begin_mutex_};
    if (!is_connected_) {
      check(pmix_.init(&own_, nullptr, 0), errc::not_supported, "PMIx_Init",
            "is this process started by mpirun, or by srun --mpi=pmix?");
      is_connected_ = true;
    }
    if (!has_begun_) {
      position_.size = number_of(stop, PMIX_JOB_SIZE);
      position_.local_size = number_of(stop, PMIX_LOCAL_SIZE);
      position_.rank = own_.rank;
      if (position_.size < 1 || position_.size > ranks_max || own_.rank >= position_.size)
        throw_failure(errc::bad_message, "PMIx_Init",
                      detail_text("rank %u of a job of %u: 1 to %u ranks can be", own_.rank,
                                  position_.size, ranks_max));
      register_handler(stop);
      has_begun_ = true;
    }
    return position_;
  }

  std::vector<bytes> exchange(const std::stop_token& stop, std::span<const std::byte> own,
                              std::size_t bytes_max) {
    const exchanging only{*this, stop};
    const std::string key = "cordma.meeting." + std::to_string(exchanges_++);
    put(key, own);
    fence(stop);
    std::vector<bytes> all;
    all.reserve(position_.size);
    for (unsigned rank = 0; rank < position_.size; ++rank)
      all.push_back(bytes_of(stop, rank, key, bytes_max));
    is_broken_ = false;
    return all;
  }

  struct watcher {
    cordma::executor& executor;
    callback<void(unsigned rank)> on_lost;
  };
  std::shared_ptr<void> watch(cordma::executor& executor, callback<void(unsigned rank)> on_lost) {
    const auto own = std::make_shared<watcher>(watcher{executor, std::move(on_lost)});
    const std::lock_guard lock{watch_mutex_};
    watchers_.push_back(own);
    for (const unsigned rank : lost_) tell(own, rank);
    return std::make_shared<watch_handle>(*this, own);
  }

 private:
  /// Exchanges one after the other: PMIx tells fences of the same ranks apart by their order only.
  class exchanging {
   public:
    exchanging(session& all, const std::stop_token& stop) : all_{all} {
      std::unique_lock lock{all_.exchange_mutex_};
      if (!all_.exchange_ended_.wait(lock, stop, [&all] { return !all.is_exchanging_; }) ||
          stop.stop_requested())
        throw_failure(errc::timed_out, "PMIx", {});
      if (std::exchange(all_.is_broken_, true))
        throw_failure(errc::refused, "meeting::by_pmix",
                      "an earlier meeting by PMIx failed in this process, which makes all later "
                      "ones fail: start the job again");
      all_.is_exchanging_ = true;
    }
    exchanging(const exchanging&) = delete;
    ~exchanging() {
      const std::lock_guard lock{all_.exchange_mutex_};
      all_.is_exchanging_ = false;
      all_.exchange_ended_.notify_all();
    }

   private:
    session& all_;
  };

  /// Returns an answer that lives until PMIx has ended, for one that is late.
  answer& new_answer() {
    const std::lock_guard lock{answers_mutex_};
    return answers_.emplace_back();
  }
  void drop(const answer& old) {
    const std::lock_guard lock{answers_mutex_};
    answers_.remove_if([&old](const answer& one) { return &one == &old; });
  }

  void check(pmix_status_t status, errc code, const char* call, const char* why) const {
    if (status == PMIX_SUCCESS) return;
    throw_failure(code, call, detail_text("%s: %s", pmix_.error_string(status), why));
  }

  [[nodiscard]] pmix_proc_t rank_of_job(pmix_rank_t rank) const {
    pmix_proc_t other = own_;
    other.rank = rank;
    return other;
  }

  unsigned number_of(const std::stop_token& stop, const char* key) {
    const pmix_proc_t job = rank_of_job(PMIX_RANK_WILDCARD);
    answer& got = new_answer();
    pmix_status_t status = pmix_.get(&job, key, nullptr, 0, &on_value, &got);
    if (status == PMIX_SUCCESS) status = got.wait(stop);
    check(status, errc::not_supported, "PMIx_Get", key);
    const std::optional<unsigned> number = got.number();
    drop(got);
    if (!number) throw_failure(errc::bad_message, "PMIx_Get", detail_text("%s is no number", key));
    return *number;
  }

  bytes bytes_of(const std::stop_token& stop, unsigned rank, const std::string& key,
                 std::size_t bytes_max) {
    const pmix_proc_t other = rank_of_job(rank);
    answer& got = new_answer();
    got.bytes_max = bytes_max;
    pmix_status_t status = pmix_.get(&other, key.c_str(), nullptr, 0, &on_value, &got);
    if (status == PMIX_SUCCESS) status = got.wait(stop);
    const std::string peer = "rank " + std::to_string(rank);
    check(status, errc::disconnected, "PMIx_Get", peer.c_str());
    std::optional<bytes> all = got.bytes();
    drop(got);
    if (!all)
      throw_failure(errc::bad_message, "PMIx_Get",
                    detail_text("%s has put no bytes, or more than %zu", peer.c_str(), bytes_max));
    return std::move(*all);
  }

  void put(const std::string& key, std::span<const std::byte> own) const {
    bytes copy{own.begin(), own.end()};
    pmix_value_t value{};
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo = {reinterpret_cast<char*>(copy.data()), copy.size()};
    check(pmix_.put(PMIX_GLOBAL, key.c_str(), &value), errc::disconnected, "PMIx_Put",
          "the launcher's server does not take what this rank tells");
    check(pmix_.commit(), errc::disconnected, "PMIx_Commit",
          "the launcher's server does not take what this rank tells");
  }

  void fence(const std::stop_token& stop) {
    const pmix_proc_t all = rank_of_job(PMIX_RANK_WILDCARD);
    pmix_info_t collect{};
    std::strncpy(collect.key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    answer& got = new_answer();
    pmix_status_t status = pmix_.fence(&all, 1, &collect, 1, &on_op, &got);
    if (status == PMIX_SUCCESS) status = got.wait(stop);
    if (status == PMIX_OPERATION_SUCCEEDED) status = PMIX_SUCCESS;
    check(status, errc::disconnected, "PMIx_Fence", "a rank has left the job before all had come");
    drop(got);
  }

  void register_handler(const std::stop_token& stop) {
    auto codes = deaths;
    answer& got = new_answer();
    const pmix_status_t status = pmix_.register_handler(codes.data(), codes.size(), nullptr, 0,
                                                        &on_event, &on_registered, &got);
    // A launcher without events is none that tells of deaths; the connections still do.
    if (status == PMIX_SUCCESS) static_cast<void>(got.wait(stop));
  }

  static void on_event(std::size_t, pmix_status_t, const pmix_proc_t* source, pmix_info_t info[],
                       std::size_t count, pmix_info_t*, std::size_t,
                       pmix_event_notification_cbfunc_fn_t done, void* of) {
    const pmix_proc_t* dead = source;
    for (std::size_t i = 0; i < count; ++i) {
      const bool is_affected =
          std::strncmp(info[i].key, PMIX_EVENT_AFFECTED_PROC, PMIX_MAX_KEYLEN) == 0;
      if (is_affected && info[i].value.type == PMIX_PROC) dead = info[i].value.data.proc;
    }
    session* const of_job = current;
    if (of_job != nullptr && dead != nullptr) of_job->on_death(*dead);
    if (done != nullptr) done(PMIX_EVENT_ACTION_COMPLETE, nullptr, 0, nullptr, nullptr, of);
  }

  void on_death(const pmix_proc_t& dead) noexcept {
    const bool is_of_job = std::strncmp(dead.nspace, own_.nspace, PMIX_MAX_NSLEN) == 0;
    const std::lock_guard lock{watch_mutex_};
    const bool is_known = std::ranges::find(lost_, dead.rank) != lost_.end();
    if (!is_of_job || is_known || dead.rank >= position_.size || dead.rank == own_.rank) return;
    try {
      lost_.push_back(dead.rank);
      for (const std::shared_ptr<watcher>& one : watchers_) tell(one, dead.rank);
    } catch (const std::bad_alloc&) {
      return;  // The connections tell of the death as well.
    }
  }

  static void tell(const std::shared_ptr<watcher>& to, unsigned rank) {
    to->executor.post([weak = std::weak_ptr{to}, rank]() noexcept {
      if (const auto watching = weak.lock()) watching->on_lost(rank);
    });
  }
  void forget(const std::shared_ptr<watcher>& own) noexcept {
    const std::lock_guard lock{watch_mutex_};
    watchers_.remove(own);
  }

  /// Ends a watch. The lock keeps the executor while a call is posted there.
  struct watch_handle {
    watch_handle(session& of, std::shared_ptr<watcher> watching)
        : all{of}, own{std::move(watching)} {}
    watch_handle(const watch_handle&) = delete;
    ~watch_handle() { all.forget(own); }
    session& all;
    std::shared_ptr<watcher> own;
  };

  /// The session that events are for: their handler is told nothing of its own.
  static inline std::atomic<session*> current = nullptr;

  const pmix_library& pmix_;
  std::mutex begin_mutex_;
  const pid_t process_ = ::getpid();
  bool is_connected_ = false;
  bool has_begun_ = false;
  pmix_proc_t own_{};
  position position_;

  std::mutex exchange_mutex_;
  std::condition_variable_any exchange_ended_;
  bool is_exchanging_ = false;
  bool is_broken_ = false;
  unsigned exchanges_ = 0;

  std::mutex answers_mutex_;
  std::list<answer> answers_;

  std::mutex watch_mutex_;
  std::list<std::shared_ptr<watcher>> watchers_;
  std::vector<unsigned> lost_;
};

bool pmix_client::is_available() noexcept { return pmix_library::load() != nullptr; }

pmix_client& pmix_client::instance() {
  static pmix_client client{loaded_library()};
  return client;
}

pmix_client::pmix_client(const pmix_library& functions)
    : session_{std::make_unique<session>(functions)}, threads_{std::make_unique<side_threads>()} {}
pmix_client::~pmix_client() {
  if (session_->is_own()) return;
  [[maybe_unused]] const side_threads* const left = threads_.release();
}

pmix_client::position pmix_client::begin(const std::stop_token& stop) {
  return session_->begin(stop);
}

std::vector<pmix_client::bytes> pmix_client::exchange(const std::stop_token& stop,
                                                      std::span<const std::byte> own,
                                                      std::size_t bytes_max) {
  return session_->exchange(stop, own, bytes_max);
}

std::shared_ptr<void> pmix_client::watch(cordma::executor& executor,
                                         callback<void(unsigned rank)> on_lost) {
  return session_->watch(executor, std::move(on_lost));
}

}  // namespace cordma::detail
