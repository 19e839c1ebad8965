/* A server and a client, each a process with a thread of its own for I/O, in C and by callbacks.
 * Usage: c_callbacks server [DEVICE] | client ADDRESS [DEVICE] */

#include <cordma.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_BYTES = 4096 };
static const int64_t deadline_us = 30 * 1000 * 1000;

/* Ends the program when a call failed. */
static void check(int status, const char* call) {
  if (status == CORDMA_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, cordma_status_text(status), cordma_error_text());
  exit(1);
}

static cordma_context init(const char* device) {
  cordma_options options = CORDMA_OPTIONS;
  cordma_context made;
  options.device = device;
  options.loop = CORDMA_THREAD;
  options.pins = 1; /* The thread stays on CPU 0. */
  options.cpu = 0;
  check(cordma_init(&options, &made), "cordma_init");
  return made;
}

/* ------------------------------------------------------------------------------- server */

struct server {
  cordma_memory memory;
  char* bytes;
  sem_t client_left;
};

static void on_message(cordma_connection client, const void* data, const cordma_message* about,
                       void* user) {
  struct server* const self = user;
  (void)client;
  if (about->is_write) {
    printf("server: the client wrote '%s', and said %u\n", self->bytes, about->immediate);
  } else {
    printf("server: received '%.*s'", (int)about->bytes, (const char*)data);
    if (about->has_immediate) printf(" with %u", about->immediate);
    printf("\n");
  }
}

static void on_client_left(cordma_connection client, int status, void* user) {
  struct server* const self = user;
  printf("server: the client has left: %s\n", cordma_status_text(status));
  cordma_disconnect(client, 0);
  sem_post(&self->client_left);
}

/* Tells the client where it may write. */
static void on_client(cordma_listener listener, cordma_connection client, int status, void* user) {
  struct server* const self = user;
  (void)listener;
  check(status, "accept");
  check(cordma_set_receive_callback(client, on_message, on_client_left, self),
        "cordma_set_receive_callback");
  cordma_work name = {.kind = CORDMA_SEND, .memory = self->memory, .bytes = CORDMA_NAME_BYTES};
  name.offset = MEMORY_BYTES - CORDMA_NAME_BYTES;
  check(cordma_export(self->memory, self->bytes + name.offset), "cordma_export");
  check(cordma_post(client, &name, deadline_us, NULL, NULL), "cordma_post");
}

static void serve(const char* device) {
  struct server self;
  cordma_listener listener;
  char address[64];
  void* bytes;
  const cordma_context context = init(device);
  sem_init(&self.client_left, 0, 0);
  check(cordma_allocate(context, MEMORY_BYTES, CORDMA_REMOTE_READ | CORDMA_REMOTE_WRITE,
                        &self.memory, &bytes),
        "cordma_allocate");
  self.bytes = bytes;
  check(cordma_listen(context, NULL, &listener), "cordma_listen");
  check(cordma_address(listener, address, sizeof address), "cordma_address");
  check(cordma_set_accept_callback(listener, on_client, &self), "cordma_set_accept_callback");
  check(cordma_start(listener), "cordma_start");
  printf("listening on %s\n", address);
  fflush(stdout);
  while (sem_wait(&self.client_left) != 0) {
  }
  check(cordma_stop(listener), "cordma_stop");
  check(cordma_release(context, deadline_us), "cordma_release");
}

/* ------------------------------------------------------------------------------- client */

struct client {
  sem_t was_told; /* A request has ended, or the name has come. */
  unsigned char name[CORDMA_NAME_BYTES];
  int status;
};

static void on_name(cordma_connection server, const void* data, const cordma_message* about,
                    void* user) {
  struct client* const self = user;
  (void)server;
  if (about->is_write || about->bytes != sizeof self->name) return;
  memcpy(self->name, data, sizeof self->name);
  sem_post(&self->was_told);
}

static void on_lost(cordma_connection server, int status, void* user) {
  (void)server;
  (void)user;
  check(status, "the server");
}

static void on_end(cordma_connection server, int status, uint64_t bytes, void* user) {
  struct client* const self = user;
  (void)server;
  (void)bytes;
  self->status = status;
  sem_post(&self->was_told);
}

/* Posts a request and waits for its callback; a program would do something else meanwhile. */
static void post(struct client* self, cordma_connection server, const cordma_work* work) {
  check(cordma_post(server, work, deadline_us, on_end, self), "cordma_post");
  while (sem_wait(&self->was_told) != 0) {
  }
  check(self->status, "a posted request");
}

static void use(const char* address, const char* device) {
  struct client self;
  cordma_connection server;
  cordma_memory memory;
  cordma_remote remote;
  void* bytes;
  const cordma_context context = init(device);
  sem_init(&self.was_told, 0, 0);
  check(cordma_connect(context, address, deadline_us, &server), "cordma_connect");
  check(cordma_set_receive_callback(server, on_name, on_lost, &self),
        "cordma_set_receive_callback");
  check(cordma_allocate(context, MEMORY_BYTES, CORDMA_LOCAL, &memory, &bytes), "cordma_allocate");
  char* const text = bytes;
  while (sem_wait(&self.was_told) != 0) {
  }
  check(cordma_import(server, self.name, &remote), "cordma_import");

  cordma_work work = {.kind = CORDMA_SEND, .memory = memory, .remote = remote};
  work.bytes = (size_t)snprintf(text, MEMORY_BYTES, "hello");
  post(&self, server, &work);
  work.kind = CORDMA_SEND_IMMEDIATE;
  work.immediate = 42;
  post(&self, server, &work);
  work.kind = CORDMA_WRITE;
  work.bytes = (size_t)snprintf(text, MEMORY_BYTES, "written by a callback") + 1;
  post(&self, server, &work);
  work.kind = CORDMA_WRITE_IMMEDIATE;
  work.immediate = 43;
  post(&self, server, &work);
  work.kind = CORDMA_READ;
  work.offset = 1024;
  post(&self, server, &work);
  printf("client: posted requests read back '%s'\n", text + 1024);

  const size_t length = (size_t)snprintf(text, MEMORY_BYTES, "written by a blocking call") + 1;
  check(cordma_write(server, memory, 0, length, remote, 64, deadline_us), "cordma_write");
  check(cordma_read(server, memory, 2048, length, remote, 64, deadline_us), "cordma_read");
  printf("client: blocking calls read back '%s'\n", text + 2048);
  check(cordma_disconnect(server, deadline_us), "cordma_disconnect");
  check(cordma_release(context, deadline_us), "cordma_release");
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "server") == 0) {
    serve(argc > 2 ? argv[2] : "");
  } else if (argc > 2 && strcmp(argv[1], "client") == 0) {
    use(argv[2], argc > 3 ? argv[3] : "");
  } else {
    fprintf(stderr, "usage: %s server [DEVICE] | client ADDRESS [DEVICE]\n", argv[0]);
    return 2;
  }
  return 0;
}
