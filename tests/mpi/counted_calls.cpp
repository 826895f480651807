// A library to preload before MPI: it counts the messages that a program gives to MPI, where MPI gets them. Shares no
// code with the program's own counters, which counted_calls_mpi_test.cpp compares with it.

#include <mpi.h>

#include <map>

namespace {

struct Sent {
  unsigned long long messages = 0, bytes = 0;

  void add(unsigned long long size) {
    ++messages;
    bytes += size;
  }
};

Sent& sent() {
  static Sent all;
  return all;
}

/// Of prepared messages.
std::map<MPI_Request, unsigned long long>& prepared() {
  static std::map<MPI_Request, unsigned long long> sizes;
  return sizes;
}

unsigned long long bytes_of(int count, MPI_Datatype type) {
  int size = 0;
  PMPI_Type_size(type, &size);
  return static_cast<unsigned long long>(count) * static_cast<unsigned long long>(size);
}

void start(MPI_Request request) {
  auto const found = prepared().find(request);
  if (found != prepared().end()) sent().add(found->second); // else a receive
}

} // namespace

extern "C" {

void trainstone_test_sent(unsigned long long* messages, unsigned long long* bytes) {
  *messages = sent().messages;
  *bytes = sent().bytes;
}

int MPI_Send(void const* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm communicator) {
  sent().add(bytes_of(count, type));
  return PMPI_Send(data, count, type, to, tag, communicator);
}

int MPI_Isend(void const* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm communicator,
              MPI_Request* request) {
  sent().add(bytes_of(count, type));
  return PMPI_Isend(data, count, type, to, tag, communicator, request);
}

int MPI_Send_init(void const* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm communicator,
                  MPI_Request* request) {
  int const result = PMPI_Send_init(data, count, type, to, tag, communicator, request);
  prepared()[*request] = bytes_of(count, type);
  return result;
}

int MPI_Start(MPI_Request* request) {
  start(*request);
  return PMPI_Start(request);
}

int MPI_Startall(int count, MPI_Request requests[]) {
  for (int i = 0; i < count; ++i) start(requests[i]);
  return PMPI_Startall(count, requests);
}

int MPI_Request_free(MPI_Request* request) {
  prepared().erase(*request);
  return PMPI_Request_free(request);
}
}
