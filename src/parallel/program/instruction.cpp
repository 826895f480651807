#include "parallel/program/instruction.hpp"

#include "core/error.hpp"
#include "parallel/plan/shard_plan.hpp"

#include <fmt/format.h>

namespace trainstone {

namespace {

std::string unit_name(ShardPlan const& plan, Index unit) {
  if (unit < 0 || unit >= std::ssize(plan.layout.units)) return fmt::format("unit {}", unit);
  return plan.layout.units[static_cast<std::size_t>(unit)].name;
}

std::string part_name(ShardPlan const& plan, Index part) {
  if (part < 0 || part >= plan.parts.size()) return fmt::format("part {}", part);
  return to_string(plan.parts[part]);
}

std::string subject_name(Act act, Index subject, ShardPlan const& plan) {
  switch (act) {
  case Act::fetch:
  case Act::gather:
  case Act::publish:
  case Act::fold: return unit_name(plan, subject);
  case Act::forward:
  case Act::recompute:
  case Act::backward: return part_name(plan, subject);
  case Act::reduce:
  case Act::accumulate:
  case Act::reduce_sums: return fmt::format("bucket {}", subject);
  case Act::send:
  case Act::receive: return std::string(to_string(static_cast<MessageKind>(subject)));
  case Act::exchange: return std::string(to_string(static_cast<SliceExchange>(subject)));
  case Act::update: return subject == Instruction::none ? "" : unit_name(plan, subject);
  default: return "";
  }
}

} // namespace

std::string_view to_string(Act act) {
  switch (act) {
  case Act::load: return "load";
  case Act::receive: return "receive";
  case Act::send: return "send";
  case Act::exchange: return "exchange";
  case Act::fetch: return "fetch";
  case Act::gather: return "gather";
  case Act::forward: return "forward";
  case Act::recompute: return "recompute";
  case Act::loss: return "loss";
  case Act::backward: return "backward";
  case Act::fold: return "fold";
  case Act::reduce: return "reduce";
  case Act::accumulate: return "accumulate";
  case Act::reduce_sums: return "reduce sums of";
  case Act::tie: return "tie the token table";
  case Act::agree: return "agree on losses";
  case Act::norm: return "norm";
  case Act::update: return "update";
  case Act::publish: return "publish";
  case Act::wait: return "wait for";
  }
  return "unknown";
}

Pass pass_of(Act act) {
  switch (act) {
  case Act::forward: return Pass::forward;
  case Act::recompute: return Pass::recompute;
  case Act::loss: return Pass::loss;
  case Act::backward: return Pass::backward;
  default: throw Error(fmt::format("\"{}\" computes nothing", to_string(act)));
  }
}

Part part_of(Instruction const& instruction, PartTable const& parts) {
  return parts[instruction.act == Act::loss ? parts.size() - 1 : instruction.subject];
}

std::vector<PartPiece> pieces_of(Instruction const& instruction, PartTable const& parts) {
  Part const part = part_of(instruction, parts);
  return part_pieces(pass_of(instruction.act), part.kind, parts.options(), parts.recompute(part));
}

Range pieces_run(Instruction const& instruction, PartTable const& parts) {
  if (instruction.piece != Instruction::none) return {instruction.piece, instruction.piece + 1};
  return {0, std::ssize(pieces_of(instruction, parts))};
}

bool begins_pass(Instruction const& instruction) {
  return instruction.piece == Instruction::none || instruction.piece == 0;
}

bool ends_pass(Instruction const& instruction, PartTable const& parts) {
  return instruction.piece == Instruction::none || instruction.piece + 1 == std::ssize(pieces_of(instruction, parts));
}

std::optional<Index> chunk_of(Instruction const& instruction, PartTable const& parts) {
  if (instruction.piece == Instruction::none) return std::nullopt;
  return pieces_of(instruction, parts)[static_cast<std::size_t>(instruction.piece)].chunk;
}

bool ends_chunk(Instruction const& instruction, PartTable const& parts) {
  if (ends_pass(instruction, parts)) return true;
  std::vector<PartPiece> const pieces = pieces_of(instruction, parts);
  auto const piece = static_cast<std::size_t>(instruction.piece);
  return pieces[piece].chunk != pieces[piece + 1].chunk;
}

std::string to_string(Instruction const& instruction, ShardPlan const& plan) {
  bool const waits = instruction.act == Act::wait;
  Act const act = waits ? instruction.started : instruction.act;
  std::string text = fmt::format("{}{}", waits ? "wait for " : "", to_string(act));
  if (std::string const subject = subject_name(act, instruction.subject, plan); !subject.empty()) text += " " + subject;
  if (instruction.piece != Instruction::none)
    text += fmt::format(", {} {}", computes(act) ? "piece" : "chunk", instruction.piece);
  if (act == Act::exchange && instruction.slot != Instruction::none) text += fmt::format(", rows {}", instruction.slot);
  if (act == Act::gather && instruction.slot != Instruction::none)
    text += fmt::format(" {} slot {}", waits ? "in" : "into", instruction.slot);
  if (instruction.micro_batch != Instruction::none) text += fmt::format(", micro-batch {}", instruction.micro_batch);
  return text;
}

} // namespace trainstone
