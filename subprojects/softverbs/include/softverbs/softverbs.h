/* Faults on demand for soft0: what hardware does once a year, when a test asks for it.
 *
 * For tests that run in the process whose verbs they disturb. A program that does not call these
 * functions pays nothing and sees nothing. All may be called from any thread; all return 0, or an
 * errno value: EINVAL for an object that is not soft0's, or a value out of range; EIO for one that
 * the child of a fork inherited.
 */
#ifndef SOFTVERBS_SOFTVERBS_H
#define SOFTVERBS_SOFTVERBS_H

#include <infiniband/verbs.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The link of a queue pair. While cut, nothing that it sends arrives and nothing sent to it is
 * taken: requests end in RETRY_EXC after the timeouts and retries that the queue pair was given. */
int softverbs_cut_link(struct ibv_qp* qp, int cut);
/* Each request from now on starts `nanoseconds` after it was posted or, if later, after the one
 * before it. 0 ends it. */
int softverbs_delay_link(struct ibv_qp* qp, uint64_t nanoseconds);

/* The `nth` call (1: the next) of a verb from now on fails with `error` and does nothing else.
 * `verb` is the name that programs write: "ibv_reg_mr", "ibv_post_send", "ibv_poll_cq"...; its _ex,
 * _iova and _iova2 forms are the same verb. ibv_rereg_mr fails with IBV_REREG_MR_ERR_INPUT and
 * errno: the old region stays. Verbs that return a pointer give NULL and errno; ibv_poll_cq gives
 * -1; "ibv_wr_complete" drops its batch. Process-wide; one at a time for each verb. */
int softverbs_fail_call(const char* verb, unsigned nth, int error);

/* The next request that this queue pair executes completes with `status` and has no other effect;
 * anything but IBV_WC_SUCCESS moves the queue pair to the error state, as the real thing would. */
int softverbs_complete_next_with(struct ibv_qp* qp, enum ibv_wc_status status);
/* From now on this queue's completions are kept back, unseen by polls and channels, until release,
 * in order. */
int softverbs_withhold_completions(struct ibv_cq* cq);
int softverbs_release_completions(struct ibv_cq* cq);

/* Queues this event on the context's async fd. event->element must name an object of the context,
 * where it names one. */
int softverbs_raise_async_event(struct ibv_context* context, const struct ibv_async_event* event);

/* What the device says and enforces from now on, for objects made afterwards. */
enum softverbs_limit {
  SOFTVERBS_MAX_QP,
  SOFTVERBS_MAX_QP_WR,
  SOFTVERBS_MAX_SGE,
  SOFTVERBS_MAX_CQ,
  SOFTVERBS_MAX_CQE,
  SOFTVERBS_MAX_MR,
  SOFTVERBS_MAX_MR_BYTES,
  SOFTVERBS_MAX_PD,
  SOFTVERBS_MAX_MW,
  SOFTVERBS_MAX_AH,
  SOFTVERBS_MAX_SRQ,
  SOFTVERBS_MAX_SRQ_WR,
  SOFTVERBS_MAX_RD_ATOMIC,
  SOFTVERBS_MAX_MESSAGE_BYTES,
  SOFTVERBS_MAX_INLINE_BYTES
};
int softverbs_pretend_limit(enum softverbs_limit limit, uint64_t value);
enum softverbs_capability {
  SOFTVERBS_MEMORY_WINDOWS,
  SOFTVERBS_ATOMICS,
  SOFTVERBS_SRQ,
  SOFTVERBS_RESIZE_CQ,
  SOFTVERBS_ATOMIC_WRITE,
  SOFTVERBS_RATE_LIMITS
};
int softverbs_pretend_missing(enum softverbs_capability capability);

/* Ends all that was asked for: links whole, completions released, limits true. */
int softverbs_reset(void);

#ifdef __cplusplus
}
#endif
#endif
