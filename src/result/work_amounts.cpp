#include "result/work_amounts.hpp"

#include "core/error.hpp"
#include "result/json_file.hpp"

#include <fmt/format.h>

namespace trainstone {

using Json = nlohmann::ordered_json;

Json amounts_json(WorkAmounts const& amounts) {
  Json memory = Json::object();
  for (auto const& [name, bytes] : amounts.memory_bytes) memory[name] = bytes;
  memory["total"] = total(amounts.memory_bytes);
  Json json = {{"memory_bytes", memory},
               {"sent_bytes", amounts.sent_bytes},
               {"messages", amounts.messages},
               {"flops", amounts.flops},
               {"kernel_launches", amounts.kernel_launches}};
  if (amounts.start) {
    json["start_sent_bytes"] = amounts.start->sent_bytes;
    json["start_messages"] = amounts.start->messages;
  }
  if (amounts.offload) {
    StateMoves const& moves = amounts.offload->moves;
    json["offload"] = {{"to_host_bytes", moves.to_host},  {"to_kernels_bytes", moves.to_kernels},
                       {"read_bytes", moves.read},        {"written_bytes", moves.written},
                       {"file_requests", moves.requests}, {"file_bytes", amounts.offload->file_bytes}};
  }
  return json;
}

WorkAmounts read_amounts(JsonFile const& file, std::string const& place) {
  WorkAmounts amounts;
  std::string const memory = place + "/memory_bytes";
  for (auto const& [key, pointer] : file.members(memory))
    if (key != "total") amounts.memory_bytes.emplace_back(key, file.amount(pointer));
  file.require(total(amounts.memory_bytes) == file.amount(memory + "/total"),
               fmt::format("{}/total is {}, the others add up to {}", memory, file.amount(memory + "/total"),
                           total(amounts.memory_bytes)));
  amounts.sent_bytes = file.amount(place + "/sent_bytes");
  amounts.messages = file.amount(place + "/messages");
  amounts.flops = file.amount(place + "/flops");
  amounts.kernel_launches = file.amount(place + "/kernel_launches");
  if (file.has(place + "/start_messages"))
    amounts.start = StartAmounts{file.amount(place + "/start_sent_bytes"), file.amount(place + "/start_messages")};
  if (std::string const offload = place + "/offload"; file.has(offload)) {
    auto const amount = [&](char const* name) { return file.amount(offload + "/" + name); };
    amounts.offload = OffloadAmounts{{amount("to_host_bytes"), amount("to_kernels_bytes"), amount("read_bytes"),
                                      amount("written_bytes"), amount("file_requests")},
                                     amount("file_bytes")};
  }
  return amounts;
}

} // namespace trainstone
