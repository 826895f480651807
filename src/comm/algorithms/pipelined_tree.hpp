#pragma once

// All-reduce on a binary tree, in segments: sums go up to the root and results come down at the same time, each rank
// working on several segments at once. Long messages at the depth of a tree; an inner rank sends up to 3 S bytes. Any
// number of ranks, any number of elements; Problem::longest_segment() elements per message.
// Source: Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, 2009 (the
// pipelined binary tree that the two trees are made of).

#include "comm/schedule/problem.hpp"

namespace trainstone {

/// Subtrees are runs of neighbours on Topology::ring(), so that few of the tree's edges cross a node border. While one
/// segment is received, the one before it is added and the one before that goes to the parent.
Schedule make_pipelined_tree_all_reduce(Problem const& problem, Rank rank);

} // namespace trainstone
