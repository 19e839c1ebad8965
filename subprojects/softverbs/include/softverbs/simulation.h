/* softverbs without threads, sockets or a clock of its own: the caller decides what happens when.
 *
 * A simulation has hosts, each with one process that may open soft0. All hosts are in one thread.
 * The calls of verbs are those of the host that was entered last. Nothing happens between two
 * calls: work that a host has is done by softverbs_do_step(), and a frame that it has sent arrives
 * by softverbs_deliver(). Nothing that was sent is lost, doubled or reordered on a link, but
 * datagrams by softverbs_lose() and softverbs_inject().
 *
 * Not simulated: rdma_cm, multicast, InfiniBand ports, XRC between processes.
 */
#ifndef SOFTVERBS_SIMULATION_H
#define SOFTVERBS_SIMULATION_H

#include <infiniband/verbs.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct softverbs_host;
struct softverbs_copy;

/* One end of a route between two hosts. It is no end any more after `ended` was told of it. */
struct softverbs_end {
  struct softverbs_host* host;
  void* link;
  uint32_t generation;
};

/* A frame that was sent: requests and answers go on links of their own. */
struct softverbs_frame {
  uint32_t bytes; /* of the message, without the header */
  uint32_t source_qpn, destination_qpn;
  uint32_t psn;
  uint8_t kind;        /* frame_kind of softverbs: for traces */
  uint8_t is_answer;   /* 1: an acknowledgement, or the bytes that a request asked for */
  uint8_t may_be_lost; /* 1: of an unconnected or unreliable queue pair */
  uint8_t is_rnr_nak;  /* 1: the answer to a message for which no receive was posted. Queue pairs of
                        * one host send no frames to each other, also not these. */
};

/* The caller. All functions but `called` are called in the middle of verbs and steps: they note,
 * and return. Those that may be NULL are then not asked. */
struct softverbs_world {
  void* context;
  /* The host has steps that can be done. */
  void (*has_work)(void* context, struct softverbs_host* host);
  /* That end has sent a frame, behind those that it sent before. */
  void (*sent)(void* context, const struct softverbs_end* from,
               const struct softverbs_frame* frame);
  /* That end has failed, or was closed. softverbs_end_link() it, and its peer when that hears. */
  void (*ended)(void* context, const struct softverbs_end* end);
  /* Returns the host with this GID and slot of a process; NULL: nobody, or out of reach. */
  struct softverbs_host* (*find)(void* context, const union ibv_gid* gid, uint16_t slot);
  /* The host's process calls a verb of softverbs_fail_call()'s list, and nothing of it was done
   * yet: steps may be done here and frames arrive, also of this host. Returns 0, or the errno with
   * which the verb fails; a verb that destroys or closes an object goes on. `ctx` is NULL for
   * ibv_open_device. ibv_create_ah_from_wc is the two verbs that it is made of. May be NULL. */
  int (*called)(void* context, struct softverbs_host* host, const char* verb,
                struct ibv_context* ctx);
  /* The host's device has written `length` bytes of its process's memory: a piece of a message. The
   * key is that of the peer's WRITE or atomic; 0: a receive, or what the host itself asked for. Of
   * a piece in unmapped memory it does not tell. May be NULL. */
  void (*written)(void* context, struct softverbs_host* host, uint64_t address, uint64_t length,
                  uint32_t remote_key);
  /* A completion channel or a context of the host has an event more, and its descriptor is
   * readable. May be NULL. */
  void (*readable)(void* context, struct softverbs_host* host, int fd);
  /* A queue pair (ibv_qp) or a shared receive queue (ibv_srq) of the host is destroyed, and with it
   * the requests that it had. May be NULL. */
  void (*destroyed)(void* context, struct softverbs_host* host, const void* queue);
  /* 1: the kernel does not know whether the descriptor of a channel or a context is readable, and
   * an event costs no system calls. softverbs_is_readable() tells. */
  uint8_t keeps_tokens;
  /* 1: completions that came before ibv_req_notify_cq raise no event, as devices may have it: a
   * program polls once more after it. 0: those that no event has announced do. */
  uint8_t arms_for_later;
  /* The bytes that each direction of a link holds before a queue pair has to wait: all frames that
   * were sent and not taken. From 256 KiB to 1 MiB; 0: 1 MiB. Of the host that opens the link. */
  uint32_t link_bytes;
};

/* The time of all hosts is *nanoseconds from now on; NULL: CLOCK_MONOTONIC. Not negative. */
void softverbs_simulate_time(const int64_t* nanoseconds);

/* Adds a host. `slot` is part of its queue pairs' numbers (at most 1023), and `first_qpn` what the
 * first of these begins with. Returns NULL and errno: EINVAL (also for `link_bytes`), ENOMEM. */
struct softverbs_host* softverbs_add_host(const struct softverbs_world* world,
                                          const union ibv_gid* gids, unsigned gid_count,
                                          uint16_t slot, uint32_t first_qpn);
/* Makes the next calls those of this host; NULL: of the process itself. Returns the host before.
 * What softverbs_pretend_limit() and softverbs_pretend_missing() change is the entered host's. */
struct softverbs_host* softverbs_enter_host(struct softverbs_host* host);
/* The host's process is gone: its links end, and whatever it does afterwards reaches nobody. */
void softverbs_kill_host(struct softverbs_host* host);
/* The host has lost its power: as above, but its peers' links do not end. What it had sent may
 * still arrive. Its peers hear nothing until their requests end by RETRY_EXC, and `ended` tells of
 * their ends when a host with that GID and slot connects again. */
void softverbs_vanish_host(struct softverbs_host* host);
/* Removes a host, whose devices are closed, and all ends that are its. EBUSY: they are not. */
int softverbs_remove_host(struct softverbs_host* host);

/* A step is the least that a device does at once: */
enum softverbs_step_kind {
  SOFTVERBS_RUN,    /* the queue pair that was kicked first goes on, for one quantum */
  SOFTVERBS_TIME,   /* the queue pair whose timer was due first goes on */
  SOFTVERBS_LINK,   /* a frame that came is taken: a request, or an answer, which goes ahead */
  SOFTVERBS_ANSWER, /* a queue pair sends answers that it owes, at most 128 KiB */
  SOFTVERBS_SPACE   /* the queue pairs that waited for space on a link are kicked */
};
struct softverbs_step {
  enum softverbs_step_kind kind;
  void* link;
};
/* Writes the steps that can be done now, at most `most`. Returns their number. */
unsigned softverbs_list_steps(struct softverbs_host* host, struct softverbs_step* steps,
                              unsigned most);
/* Does one of the steps that were listed; one that is not there any more does nothing. */
void softverbs_do_step(struct softverbs_host* host, const struct softverbs_step* step);
/* Returns the time of the next timer; INT64_MAX: there is none. */
int64_t softverbs_next_timer(const struct softverbs_host* host);

/* The oldest frame under way arrives. The peer sees it in its next step. */
void softverbs_deliver(const struct softverbs_end* from);
/* The oldest frame under way, one that may be lost, does not arrive. */
void softverbs_lose(const struct softverbs_end* from);
/* Copies the oldest frame under way, which must be of an unconnected queue pair. Returns NULL: it
 * is not, or the other end is gone, or (errno) ENOMEM. A frame of an unreliable connection has its
 * turn among others, so that a second one, or a late one, has no effect but a loss. */
struct softverbs_copy* softverbs_copy_frame(const struct softverbs_end* from);
/* The copy arrives now, and is taken at once, if the other end is still there: once more, or late
 * if the frame itself was lost. */
void softverbs_inject(const struct softverbs_end* from, const struct softverbs_copy* copy);
void softverbs_free_copy(struct softverbs_copy* copy);
/* Whether the descriptor of a channel or a context is readable: 1, 0; -1: it is none of the host's.
 */
int softverbs_is_readable(const struct softverbs_host* host, int fd);
/* The objects of a host's process that are not destroyed. Parent domains are protection domains. */
struct softverbs_counts {
  uint32_t contexts, pds, mrs, mws, cqs, channels, qps, srqs, ahs;
};
struct softverbs_counts softverbs_count_objects(const struct softverbs_host* host);
/* Returns the host's queue pair of that number; NULL: there is none. */
struct ibv_qp* softverbs_find_qp(const struct softverbs_host* host, uint32_t qp_num);
/* Writes the contexts that are open, oldest first, at most `most`. Returns their number. */
unsigned softverbs_host_contexts(const struct softverbs_host* host, struct ibv_context** contexts,
                                 unsigned most);
/* The host has other addresses from now on: IBV_EVENT_GID_CHANGE. Links that are up stay. Returns
 * 0, EINVAL, ENOMEM. */
int softverbs_change_gids(struct softverbs_host* host, const union ibv_gid* gids,
                          unsigned gid_count);
/* The host's port goes down (0) or up: IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE. While it is down,
 * the host takes nothing that arrives, what it sends is not under way yet, and no links begin.
 * Returns 0, ENOMEM. */
int softverbs_set_port(struct softverbs_host* host, int up);
/* The host's device has failed for good: IBV_EVENT_DEVICE_FATAL. All its queue pairs are in error,
 * so that their requests are flushed, and their peers get no answers. ibv_modify_qp moves none to
 * a state that works (EIO). Returns 0; ENOMEM: a context hears nothing. */
int softverbs_fail_device(struct softverbs_host* host);
/* Gives the other end; 0: there is none any more. */
int softverbs_peer_end(const struct softverbs_end* end, struct softverbs_end* peer);
/* This end takes what had arrived, and is closed. */
void softverbs_end_link(const struct softverbs_end* end);

#ifdef __cplusplus
}
#endif
#endif
