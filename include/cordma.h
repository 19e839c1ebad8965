/**
 * \file
 * cordma for C: RDMA by blocking calls, by callbacks, or both. docs/c.md is the guide.
 *
 * **Outcomes.** Each function returns 0 (`CORDMA_OK`) or another status, and never throws or
 * aborts. After a failure, a handle that the call would have made is null. `into` of a
 * `cordma_all_to_all` may have got some peers' blocks, and `about` tells of a message that is
 * longer than `room`. `cordma_error_text` says which call failed, on what, and the way out.
 *
 * **Handles** are numbers that look like pointers: nobody reads memory through one. A handle that
 * is null, closed or of another kind is refused with `CORDMA_BAD_HANDLE`, for ever: its number does
 * not come back. Closing a context closes everything made from it.
 *
 * **Threads.** A context belongs to the thread that made it; from another, each call gives
 * `CORDMA_WRONG_THREAD`. Release the context there: once that thread has ended, nobody can, and
 * what the context holds stays until the process ends. With `CORDMA_THREAD` the context has a
 * thread of its own. Then any thread may call: the call is done there while the caller waits. One
 * call at a time receives from a connection.
 *
 * **Time** is in microseconds. `timeout_us` is how long a call may take; `CORDMA_FOREVER` sets no
 * limit; 0 takes only what is there. A late call gives `CORDMA_TIMED_OUT`. A request that the
 * device has got goes on: its memory stays registered until it ends, and a READ may still fill it.
 * A message that was not received stays for the next call. Functions without `timeout_us` wait for
 * no peer. With `CORDMA_THREAD`, a late call that has not begun, as a callback keeps the context's
 * thread, does nothing. One that has begun, one with 0, one without `timeout_us`, and
 * `cordma_disconnect` and `cordma_release` take as much longer as the callback does.
 *
 * **Callbacks** run on the context's thread: its own, or the program's in `cordma_dispatch` and in
 * blocking calls. They may make any call that does not wait, and close anything but a context. One
 * that would wait gives `CORDMA_IN_CALLBACK`, whatever context it is for; so does each call for
 * another context with `CORDMA_THREAD`, as it waits for that thread. A callback must return: no
 * longjmp, no exception.
 */
#ifndef CORDMA_H
#define CORDMA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CORDMA_API __attribute__((visibility("default")))
#define CORDMA_FOREVER (-1)

/** A device with all that it needs, and, with `CORDMA_THREAD`, a thread. */
typedef struct cordma_context_handle* cordma_context;
typedef struct cordma_listener_handle* cordma_listener;
typedef struct cordma_connection_handle* cordma_connection;
/** Registered memory of this process. */
typedef struct cordma_memory_handle* cordma_memory;
/** Memory of the peer of one connection. */
typedef struct cordma_remote_handle* cordma_remote;

/**
 * What calls return. 1 to 35 are the numbers of cordma::errc (docs/errors.md); those below are what
 * C programs mostly ask for. 100 + n is n of ibv_wc_status (ibv_poll_cq(3)), 1000 + n the errno n.
 */
enum cordma_status {
  CORDMA_OK = 0,
  CORDMA_TIMED_OUT = 1,
  CORDMA_DISCONNECTED = 2, /**< The connection was closed or lost, by either side. */
  CORDMA_CLOSED = 3,       /**< The listener was closed while the call waited, or the connection was
                              dropped: its `cordma_disconnect` was late. */
  CORDMA_OUT_OF_RANGE = 4, /**< Offset and length do not lie in the memory. */
  CORDMA_ACCESS_DENIED = 7,
  CORDMA_MISALIGNED = 8,   /**< An atomic's remote address is no multiple of 8. */
  CORDMA_WRONG_LENGTH = 9, /**< A message longer than the peer takes, or than `room`. */
  CORDMA_LIMIT_EXCEEDED = 11,
  CORDMA_NO_DEVICE = 13,
  CORDMA_REFUSED = 23,
  CORDMA_BAD_HANDLE = 64,   /**< Null, closed, or of another kind. */
  CORDMA_WRONG_THREAD = 65, /**< The context belongs to another thread. */
  CORDMA_IN_CALLBACK = 66,  /**< Would wait in a callback. */
  CORDMA_BAD_ARGUMENT = 67,
  CORDMA_WRONG_STATE = 68, /**< Not now: the text says what must come before. */
  CORDMA_CANCELLED = 69,   /**< Stopped by `cordma_stop` or `cordma_release`. */
  CORDMA_WC = 100,
  CORDMA_ERRNO = 1000
};

/** Code of the last call of this thread that failed; in a callback, of what it is told. */
CORDMA_API int cordma_error_code(void);
/** Text of it; "" if none failed. Valid until the thread's next failure. */
CORDMA_API const char* cordma_error_text(void);
/** Meaning of a status, for ever valid: "deadline passed". */
CORDMA_API const char* cordma_status_text(int status);
CORDMA_API const char* cordma_version(void);

/* ------------------------------------------------------------------------------- context */

/** How completions are noticed. */
enum cordma_progress {
  CORDMA_EVENT = 0,   /**< Sleep until the device raises an event. */
  CORDMA_BUSY = 1,    /**< Poll without end: lowest latency, a whole core while a call waits. */
  CORDMA_ADAPTIVE = 2 /**< Poll a while, mostly at most 200 us; then sleep. */
};
/** Who runs the context. */
enum cordma_loop {
  CORDMA_CALLS = 0,     /**< The thread that made it, in blocking calls. */
  CORDMA_THREAD = 1,    /**< A thread of its own. */
  CORDMA_DESCRIPTOR = 2 /**< That of the program's loop, by `cordma_descriptor`. */
};
/** How urgent an event is that is logged. */
enum cordma_log_level {
  CORDMA_LOG_ERROR = 1,   /**< The device or a part of it does not work. */
  CORDMA_LOG_WARNING = 2, /**< A peer was lost or refused, or did not keep to its lease. */
  CORDMA_LOG_INFO = 3,    /**< Connections and listeners come and go. */
  CORDMA_LOG_DEBUG = 4    /**< Memory is lent and returned. */
};
/** Is told of an event by a line of printable text, which is valid in the call only, on the
 * context's thread. Calls nothing of cordma. docs/logging.md lists the events. */
typedef void cordma_logged(int level, const char* line, void* user);

/** Options of a context. 0 is each one's default: `cordma_options o = CORDMA_OPTIONS;` */
typedef struct cordma_options {
  size_t struct_bytes; /**< sizeof(cordma_options). */
  const char* device;  /**< Null: the environment's CORDMA_DEVICE, else the first active. */
  int progress;        /**< A cordma_progress. `CORDMA_BUSY` not with a descriptor. */
  int loop;            /**< A cordma_loop. */
  int pins;            /**< Not 0: its own thread stays on `cpu`. */
  unsigned cpu;
  unsigned receives;       /**< Receive buffers of each connection, also of those that are not
                                accepted yet; 0: 64. At most 4096. */
  uint32_t receive_bytes;  /**< Bytes of each: the longest message. 0: 4096. At most 1 GiB. */
  uint64_t lend_bytes_max; /**< What each peer may borrow by `cordma_request`; 0: nothing. */
  int insecure;            /**< Not 0: listeners may be reached by strangers (docs/security.md). */
  cordma_logged* log;      /**< Null: standard error, as the environment's CORDMA_LOG says. */
  void* log_user;          /**< Passed to `log`. */
  int log_level;           /**< The least urgent cordma_log_level that is logged; 0: `INFO`. */
} cordma_options;
#define CORDMA_OPTIONS {sizeof(cordma_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/**
 * Opens a device. `options` null: all defaults.
 * \errors CORDMA_NO_DEVICE; CORDMA_BAD_ARGUMENT: an option; CORDMA_ERRNO + EINVAL: no such CPU.
 */
CORDMA_API int cordma_init(const cordma_options* options, cordma_context* context);
/** Closes all that was made from `context`, connections by a goodbye within `timeout_us`; then
 * the context. What waits ends with CORDMA_CLOSED, CORDMA_CANCELLED or CORDMA_DISCONNECTED. Not in
 * a callback. */
CORDMA_API int cordma_release(cordma_context context, int64_t timeout_us);

/* ---------------------------------------------------------------------------- connections */

/** Listens on "host:port" (port 0: the kernel chooses), "unix:path" or "rdma_cm:host:port"; null:
 * loopback, any port. A host's name is looked up as by `cordma_connect`.
 * \errors CORDMA_ERRNO + EADDRINUSE and others. */
CORDMA_API int cordma_listen(cordma_context context, const char* address, cordma_listener* made);
/** Writes the address, as `cordma_connect` takes it, with its final 0. \errors CORDMA_WRONG_LENGTH:
 * longer than `room`. */
CORDMA_API int cordma_address(cordma_listener listener, char* text, size_t room);
/** Waits for the next client. What it has sent already is there. \errors CORDMA_WRONG_STATE:
 * between `cordma_start` and `_stop`. */
CORDMA_API int cordma_accept(cordma_listener listener, int64_t timeout_us, cordma_connection* made);
/** Frees the port. Accepted connections stay. */
CORDMA_API int cordma_close(cordma_listener listener);
/** Connects to a listener. A host's name is looked up first, however long that takes, and the
 * context's thread does nothing else meanwhile; a numeric address is not looked up.
 * \errors CORDMA_ERRNO + ECONNREFUSED and others; CORDMA_REFUSED; docs/errors.md has all. */
CORDMA_API int cordma_connect(cordma_context context, const char* address, int64_t timeout_us,
                              cordma_connection* made);
/** Ends a connection: waits for what is posted and for the peer's goodbye. The handle is closed
 * whatever is returned, unless the call is refused (`CORDMA_WRONG_THREAD`, `CORDMA_IN_CALLBACK`).
 * In a callback, or with 0, the rest goes on without the caller. */
CORDMA_API int cordma_disconnect(cordma_connection connection, int64_t timeout_us);

/* --------------------------------------------------------------------------------- memory */

/** What a peer may do with memory that `cordma_export` names. */
enum cordma_access {
  CORDMA_LOCAL = 0,
  CORDMA_REMOTE_READ = 1,
  CORDMA_REMOTE_WRITE = 2,
  CORDMA_REMOTE_ATOMIC = 4
};
#define CORDMA_NAME_BYTES 20

/** Allocates registered bytes, all 0, aligned to 64. \cost about 50 ns; now and then a
 * registration. \errors CORDMA_OUT_OF_RANGE: 0 bytes; CORDMA_ERRNO + ENOMEM: RLIMIT_MEMLOCK. */
CORDMA_API int cordma_allocate(cordma_context context, size_t bytes, unsigned access,
                               cordma_memory* made, void** address);
/** Registers memory of the program's own, which stays mapped until after `cordma_free` and the last
 * request that names it. \cost a registration. */
CORDMA_API int cordma_register(cordma_context context, void* address, size_t bytes, unsigned access,
                               cordma_memory* made);
/** The bytes stay registered until the last request that names them has ended. */
CORDMA_API int cordma_free(cordma_memory memory);
/** Writes the name of the memory, CORDMA_NAME_BYTES, by which peers reach it: send it to them.
 * Every peer of the context that knows or guesses a name reaches the memory.
 * \errors CORDMA_ACCESS_DENIED: made with CORDMA_LOCAL. */
CORDMA_API int cordma_export(cordma_memory memory, void* name);
/** Takes a name that this connection's peer sent. The peer's numbers are not verified: its device
 * refuses wrong ones (CORDMA_WC + 10), which ends the connection. */
CORDMA_API int cordma_import(cordma_connection connection, const void* name, cordma_remote* made);
/** Borrows zeroed memory of the peer for `lease_us`; nobody else reaches it meanwhile.
 * \errors CORDMA_REFUSED, CORDMA_LIMIT_EXCEEDED, CORDMA_ACCESS_DENIED: the peer's
 * `lend_bytes_max`. */
CORDMA_API int cordma_request(cordma_connection connection, size_t bytes, int64_t lease_us,
                              int64_t timeout_us, cordma_remote* made);
/** Gives borrowed memory back, or forgets a name. Closes the handle. Waits for nobody. */
CORDMA_API int cordma_return(cordma_remote remote);
CORDMA_API int cordma_remote_bytes(cordma_remote remote, uint64_t* bytes);

/* ---------------------------------------------------------------------- blocking transfers */

/** What came: `bytes` of a message, or that the peer wrote (`is_write`, with its immediate). */
typedef struct cordma_message {
  uint64_t bytes;
  uint32_t immediate;
  int has_immediate;
  int is_write;
} cordma_message;

/* Each of these takes `bytes` at `offset` of the memory, and `at` in the peer's. Returns when the
 * peer's device has the data, or they are here. \errors CORDMA_OUT_OF_RANGE, CORDMA_DISCONNECTED;
 * CORDMA_WC + n of the device, after which the connection is lost. \cost beside raw verbs:
 * docs/c.md. A peer without a free receive buffer is tried again for 0.4 s; then the connection is
 * lost. */
CORDMA_API int cordma_send(cordma_connection connection, cordma_memory memory, size_t offset,
                           size_t bytes, int64_t timeout_us);
CORDMA_API int cordma_send_immediate(cordma_connection connection, cordma_memory memory,
                                     size_t offset, size_t bytes, uint32_t immediate,
                                     int64_t timeout_us);
/** Copies the next message into any memory. \errors CORDMA_WRONG_LENGTH: `room` is less than
 * `about->bytes`; the message stays the next one. CORDMA_WRONG_STATE: another call receives from
 * the connection, or its receive callback. `about` may be null. */
CORDMA_API int cordma_receive(cordma_connection connection, void* into, size_t room,
                              cordma_message* about, int64_t timeout_us);
CORDMA_API int cordma_write(cordma_connection connection, cordma_memory memory, size_t offset,
                            size_t bytes, cordma_remote remote, uint64_t at, int64_t timeout_us);
/** Writes, and completes one receive of the peer with `immediate`. */
CORDMA_API int cordma_write_immediate(cordma_connection connection, cordma_memory memory,
                                      size_t offset, size_t bytes, cordma_remote remote,
                                      uint64_t at, uint32_t immediate, int64_t timeout_us);
CORDMA_API int cordma_read(cordma_connection connection, cordma_memory memory, size_t offset,
                           size_t bytes, cordma_remote remote, uint64_t at, int64_t timeout_us);
/** Swaps 8 bytes for `desired` if they are `expected`. `before` (may be null) gets the old value.
 */
CORDMA_API int cordma_compare_swap(cordma_connection connection, cordma_remote remote, uint64_t at,
                                   uint64_t expected, uint64_t desired, uint64_t* before,
                                   int64_t timeout_us);
CORDMA_API int cordma_fetch_add(cordma_connection connection, cordma_remote remote, uint64_t at,
                                uint64_t addend, uint64_t* before, int64_t timeout_us);

/** Sends the same bytes to `count` peers at once; each takes them by `cordma_receive`. All are of
 * one context; null is this side, and is left out. Waits for all, and returns the first failure in
 * the order of the peers. */
CORDMA_API int cordma_broadcast(const cordma_connection* peers, size_t count, cordma_memory memory,
                                size_t offset, size_t bytes, int64_t timeout_us);
/** Sends block k of `bytes` each to peer k, and puts peer k's into block k of `into`. Each of the
 * `count` sides calls it, with the sides in one order, and null in its own position, where the
 * block is copied. The memory has `count * bytes` at `offset`, as `into` has. A block is at most
 * `receive_bytes`. \errors CORDMA_WRONG_STATE: another call receives from a peer, or a callback. */
CORDMA_API int cordma_all_to_all(const cordma_connection* peers, size_t count, cordma_memory memory,
                                 size_t offset, void* into, size_t bytes, int64_t timeout_us);

/* ------------------------------------------------------------------------------- callbacks */

/** A client has come (CORDMA_OK). With another status `made` is null. Then either the listener
 * failed and no more will come, and `cordma_stop` gives CORDMA_WRONG_STATE; or only this client
 * could not be taken (memory, handles), and accepting goes on. */
typedef void cordma_accepted(cordma_listener listener, cordma_connection made, int status,
                             void* user);
/** A connect ended; `made` is null unless `status` is CORDMA_OK. */
typedef void cordma_connected(cordma_connection made, int status, void* user);
/** A message came. `data` is valid until the callback returns; null for a write. */
typedef void cordma_received(cordma_connection connection, const void* data,
                             const cordma_message* about, void* user);
/** The connection has ended, by the peer or by a failure. Called once, and not after
 * `cordma_disconnect`. */
typedef void cordma_failed(cordma_connection connection, int status, void* user);
/** A posted request has ended. `value`: bytes moved, or an atomic's old value. Called once for each
 * request, also after `cordma_disconnect`, and in `cordma_release` at the latest. */
typedef void cordma_completed(cordma_connection connection, int status, uint64_t value, void* user);

/** From `cordma_start` until `cordma_stop`, `accepted` gets the clients. One that comes just as
 * `cordma_stop` is called may be disconnected. */
CORDMA_API int cordma_set_accept_callback(cordma_listener listener, cordma_accepted* accepted,
                                          void* user);
CORDMA_API int cordma_start(cordma_listener listener);
CORDMA_API int cordma_stop(cordma_listener listener);
/** Connects in the background, but for looking up a host's name, as `cordma_connect`. */
CORDMA_API int cordma_start_connect(cordma_context context, const char* address, int64_t timeout_us,
                                    cordma_connected* connected, void* user);
/** All messages go to `received` from now on, first those that have come. `failed` may be null.
 * Once per connection. \errors CORDMA_WRONG_STATE: a call waits for a message. */
CORDMA_API int cordma_set_receive_callback(cordma_connection connection, cordma_received* received,
                                           cordma_failed* failed, void* user);

enum cordma_kind {
  CORDMA_SEND = 1,
  CORDMA_SEND_IMMEDIATE = 2,
  CORDMA_WRITE = 3,
  CORDMA_WRITE_IMMEDIATE = 4,
  CORDMA_READ = 5,
  CORDMA_COMPARE_SWAP = 6,
  CORDMA_FETCH_ADD = 7
};
/** A request; members that its kind does not use are ignored. */
typedef struct cordma_work {
  int kind; /**< A cordma_kind. */
  uint32_t immediate;
  cordma_memory memory;
  size_t offset;
  size_t bytes;
  cordma_remote remote;
  uint64_t at;
  uint64_t expected;
  uint64_t operand; /**< What compare-swap stores, or fetch-add adds. */
} cordma_work;

/** Posts a request, and calls `completed` (may be null) at its end, never before it returns. \cost
 * no allocation once as many were in flight before. \errors as the blocking call's, of what can be
 * seen before posting; `completed` is not called then. */
CORDMA_API int cordma_post(cordma_connection connection, const cordma_work* work,
                           int64_t timeout_us, cordma_completed* completed, void* user);

/** Gives a descriptor for poll(2), epoll(7) and the like, which is readable when `cordma_dispatch`
 * has work. The context keeps it: do not close or read it. \errors CORDMA_WRONG_STATE: another loop
 * than CORDMA_DESCRIPTOR. */
CORDMA_API int cordma_descriptor(cordma_context context, int* descriptor);
/** Does what is there, without waiting for more, and runs callbacks. Returns after a bounded amount
 * of work; the descriptor stays readable while there is more. Not in a callback. */
CORDMA_API int cordma_dispatch(cordma_context context);

#ifdef __cplusplus
}
#endif
#endif /* CORDMA_H */
