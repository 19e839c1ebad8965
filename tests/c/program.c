/* What a C program sees of the header, compiled as C11. */

#include <cordma.h>
#include <string.h>

int c_says_hello(const char* device, const char* address);

int c_says_hello(const char* device, const char* address) {
  cordma_options options = CORDMA_OPTIONS;
  cordma_context context;
  cordma_connection server;
  cordma_memory memory;
  void* text;
  options.device = device;
  int status = cordma_init(&options, &context);
  if (status != CORDMA_OK) return status;
  status = cordma_connect(context, address, CORDMA_FOREVER, &server);
  if (status == CORDMA_OK) status = cordma_allocate(context, 64, CORDMA_LOCAL, &memory, &text);
  if (status == CORDMA_OK) {
    memcpy(text, "hello from C", 12);
    status = cordma_send(server, memory, 0, 12, CORDMA_FOREVER);
  }
  if (status == CORDMA_OK) status = cordma_disconnect(server, CORDMA_FOREVER);
  const int released = cordma_release(context, CORDMA_FOREVER);
  return status != CORDMA_OK ? status : released;
}
