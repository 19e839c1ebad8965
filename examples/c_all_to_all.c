/* A server and its clients, each a process, exchange 64 bytes with each other member, in C and by
 * blocking calls. Usage: c_all_to_all server [DEVICE [CLIENTS]] | client ADDRESS [DEVICE] */

#include <cordma.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The server is a member, too: there are at most 63 clients. */
enum { MEMBERS_MAX = 64, BLOCK_BYTES = 64, ADDRESS_BYTES = 64, ROUNDS = 100 };
static const int64_t deadline_us = 30 * 1000 * 1000;

/* The message by which the server starts a client: which member it is, and where the others listen.
 */
struct start {
  uint32_t rank;
  uint32_t count;
  char address[MEMBERS_MAX][ADDRESS_BYTES];
};

/* All of this process: its connections by rank, and memory that was registered once for all calls.
 */
struct group {
  cordma_context context;
  cordma_listener listener;
  cordma_connection peers[MEMBERS_MAX];
  cordma_memory memory;
  char* out; /* The bytes of `memory`. */
  char in[MEMBERS_MAX * BLOCK_BYTES];
  char address[ADDRESS_BYTES];
  uint32_t rank;
  uint32_t count;
};

static const char* get_error(void) { return cordma_error_text(); }

static int init(struct group* g, const char* device) {
  cordma_options options = CORDMA_OPTIONS;
  options.device = device;
  options.receive_bytes = sizeof(struct start);
  memset(g, 0, sizeof *g);
  void* bytes = NULL;
  int status = cordma_init(&options, &g->context);
  if (status == CORDMA_OK)
    status = cordma_allocate(g->context, sizeof(struct start), CORDMA_LOCAL, &g->memory, &bytes);
  if (status == CORDMA_OK) status = cordma_listen(g->context, NULL, &g->listener);
  if (status == CORDMA_OK) status = cordma_address(g->listener, g->address, sizeof g->address);
  g->out = bytes;
  return status;
}

static int send_bytes(struct group* g, cordma_connection to, const void* bytes, size_t count) {
  memcpy(g->out, bytes, count);
  return cordma_send(to, g->memory, 0, count, deadline_us);
}

/* Receives a message of exactly that length: a peer is never trusted. */
static int receive_bytes(cordma_connection from, void* into, size_t count) {
  cordma_message about;
  const int status = cordma_receive(from, into, count, &about, deadline_us);
  const int is_right = status != CORDMA_OK || (!about.is_write && about.bytes == count);
  return is_right ? status : CORDMA_WRONG_LENGTH;
}

static int accept_peer(struct group* g, cordma_connection* made) {
  return cordma_accept(g->listener, deadline_us, made);
}

static int all_to_all(struct group* g) {
  return cordma_all_to_all(g->peers, g->count, g->memory, 0, g->in, BLOCK_BYTES, deadline_us);
}

static int cleanup(struct group* g) { return cordma_release(g->context, deadline_us); }

/* The server's part: each client says where it listens, and is told to start. */
static int gather(struct group* g, uint32_t clients) {
  static struct start all;
  g->count = all.count = clients + 1;
  for (uint32_t i = 1; i <= clients; ++i) {
    int status = accept_peer(g, &g->peers[i]);
    if (status == CORDMA_OK) status = receive_bytes(g->peers[i], all.address[i], ADDRESS_BYTES);
    if (status != CORDMA_OK) return status;
  }
  for (all.rank = 1; all.rank <= clients; ++all.rank) {
    const int status = send_bytes(g, g->peers[all.rank], &all, sizeof all);
    if (status != CORDMA_OK) return status;
  }
  return CORDMA_OK;
}

/* A client's part: connects to those before it, and accepts those behind it, who say which they
 * are. */
static int join(struct group* g, const char* server) {
  static struct start all;
  int status = cordma_connect(g->context, server, deadline_us, &g->peers[0]);
  if (status == CORDMA_OK) status = send_bytes(g, g->peers[0], g->address, ADDRESS_BYTES);
  if (status == CORDMA_OK) status = receive_bytes(g->peers[0], &all, sizeof all);
  if (status != CORDMA_OK) return status;
  if (all.count > MEMBERS_MAX || all.rank >= all.count) return CORDMA_OUT_OF_RANGE;
  g->rank = all.rank;
  g->count = all.count;
  for (uint32_t i = 1; i < g->rank; ++i) {
    all.address[i][ADDRESS_BYTES - 1] = '\0';
    status = cordma_connect(g->context, all.address[i], deadline_us, &g->peers[i]);
    if (status == CORDMA_OK) status = send_bytes(g, g->peers[i], &g->rank, sizeof g->rank);
    if (status != CORDMA_OK) return status;
  }
  for (uint32_t i = g->rank + 1; i < g->count; ++i) {
    cordma_connection made;
    uint32_t rank = 0;
    status = accept_peer(g, &made);
    if (status == CORDMA_OK) status = receive_bytes(made, &rank, sizeof rank);
    if (status != CORDMA_OK) return status;
    if (rank >= g->count || g->peers[rank] != NULL) return CORDMA_OUT_OF_RANGE;
    g->peers[rank] = made;
  }
  return CORDMA_OK;
}

static void block(char* text, uint32_t from, uint32_t to, int round) {
  memset(text, 0, BLOCK_BYTES);
  snprintf(text, BLOCK_BYTES, "from %" PRIu32 " to %" PRIu32 ", round %d", from, to, round);
}

static int exchange(struct group* g) {
  char wanted[BLOCK_BYTES];
  for (int round = 0; round < ROUNDS; ++round) {
    for (uint32_t to = 0; to < g->count; ++to) block(g->out + to * BLOCK_BYTES, g->rank, to, round);
    const int status = all_to_all(g);
    if (status != CORDMA_OK) return status;
    for (uint32_t from = 0; from < g->count; ++from) {
      block(wanted, from, g->rank, round);
      if (memcmp(wanted, g->in + from * BLOCK_BYTES, BLOCK_BYTES) != 0) return CORDMA_WRONG_LENGTH;
    }
  }
  printf("member %" PRIu32 ": %d rounds with %" PRIu32 " members: all blocks are right\n", g->rank,
         ROUNDS, g->count);
  return CORDMA_OK;
}

/* Nobody leaves before all are done: the server collects a byte of each, and answers. */
static int finish(struct group* g) {
  char done = 1;
  int status = CORDMA_OK;
  if (g->rank != 0) {
    status = send_bytes(g, g->peers[0], &done, 1);
    return status == CORDMA_OK ? receive_bytes(g->peers[0], &done, 1) : status;
  }
  for (uint32_t i = 1; i < g->count && status == CORDMA_OK; ++i)
    status = receive_bytes(g->peers[i], &done, 1);
  if (status == CORDMA_OK) {
    *g->out = done;
    status = cordma_broadcast(g->peers, g->count, g->memory, 0, 1, deadline_us);
  }
  return status;
}

int main(int argc, char** argv) {
  static struct group g;
  const int is_server = argc > 1 && strcmp(argv[1], "server") == 0;
  const int is_client = argc > 2 && strcmp(argv[1], "client") == 0;
  const char* const device = argc > 2 + is_client ? argv[2 + is_client] : "";
  const long clients = is_server && argc > 3 ? strtol(argv[3], NULL, 10) : 2;
  if ((!is_server && !is_client) || clients < 1 || clients >= MEMBERS_MAX) {
    fprintf(stderr, "usage: %s server [DEVICE [CLIENTS]] | client ADDRESS [DEVICE]\n", argv[0]);
    return 2;
  }
  int status = init(&g, device);
  if (status == CORDMA_OK && is_server) {
    printf("listening on %s\n", g.address);
    fflush(stdout);
    status = gather(&g, (uint32_t)clients);
  } else if (status == CORDMA_OK) {
    status = join(&g, argv[2]);
  }
  if (status == CORDMA_OK) status = exchange(&g);
  if (status == CORDMA_OK) status = finish(&g);
  if (status != CORDMA_OK) fprintf(stderr, "%s: %s\n", cordma_status_text(status), get_error());
  if (g.context != NULL) cleanup(&g);
  return status == CORDMA_OK ? 0 : 1;
}
