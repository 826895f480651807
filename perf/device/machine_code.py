"""What cuobjdump says of the kernels in an object: their resources, launch bounds and machine code, under short names."""
import dataclasses
import os
import re
import subprocess
from collections import Counter

RESERVED = 1024  # bytes of shared memory that the driver has in every block; cuobjdump counts them where a kernel has any

FUNCTION = re.compile(r"^\s*Function\s*:?\s*([\w$.]+):?\s*$")
RESOURCES = re.compile(r"\bREG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
ARCHITECTURE = re.compile(r"^arch = (sm_\w+)")
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?\w+)\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;")
INFO = re.compile(r"^\.nv\.info\.([\w$.]+)\s*$")


@dataclasses.dataclass
class Instruction:
    address: int
    opcode: str
    is_conditional: bool  # it does nothing where its predicate is false
    operands: str


@dataclasses.dataclass
class Kernel:
    symbol: str
    architecture: str
    registers: int
    local: int  # bytes of a thread's stack and local memory: of spilled registers, and of arrays that are indexed
    static_shared: int  # bytes, without those of the driver
    threads: int | None = None  # most of a block, by its launch bounds
    code: list[Instruction] = dataclasses.field(default_factory=list)
    name: str = ""
    source: str = ""  # src/... of its object

    def count(self, *prefixes, having=""):
        """Instructions that begin with one of these, up to a dot or the end."""
        return sum(1 for one in self.code if one.opcode.split(".")[0] in prefixes and having in one.opcode)


class Tool:
    """cuobjdump, which finds nvdisasm beside itself or in other folders, as PATH has them."""

    def __init__(self, path, folders):
        self.path = path
        self.environment = {**os.environ, "PATH": f"{os.path.dirname(path)}{os.pathsep}{folders}"}

    def lines(self, option, file):
        """\\throws RuntimeError   with its message, if it fails"""
        with subprocess.Popen([self.path, option, str(file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=self.environment) as process:
            last = ""
            for line in process.stdout:
                last = line if line.strip() else last
                yield line
        if process.returncode != 0:
            raise RuntimeError(f"{self.path} {option} {file}: exit {process.returncode}: {last.strip()}")


def read_resources(lines):
    """{(architecture, symbol): Kernel}"""
    kernels, symbol, architecture = {}, "", ""
    for line in lines:
        if found := ARCHITECTURE.match(line):
            architecture = found[1]
        elif found := FUNCTION.match(line):
            symbol = found[1]
        elif symbol and (found := RESOURCES.search(line)):
            registers, stack, shared, local = map(int, found.groups())
            kernels[architecture, symbol] = Kernel(symbol, architecture, registers, stack + local,
                                     shared - RESERVED if shared >= RESERVED else shared)
    return kernels


def read_code(lines, kernels):
    """Adds their instructions, without what fills the end."""
    kernel, architecture = None, ""
    for line in lines:
        if found := ARCHITECTURE.match(line):
            architecture = found[1]
        elif found := FUNCTION.match(line):
            kernel = kernels.get((architecture, found[1]))
        elif kernel and (found := INSTRUCTION.match(line)):
            address, predicate, opcode, operands = found.groups()
            if opcode != "NOP":
                kernel.code.append(Instruction(int(address, 16), opcode, predicate is not None, operands))


def read_bounds(lines, kernels):
    """Adds the threads that launch bounds say."""
    kernel, is_next, architecture = None, False, ""
    for line in lines:
        if found := ARCHITECTURE.match(line):
            architecture = found[1]
        elif line.startswith("."):
            found = INFO.match(line)
            kernel = kernels.get((architecture, found[1])) if found else None
        elif "EIATTR_MAX_THREADS" in line:
            is_next = True
        elif is_next and "Value:" in line:
            if kernel:
                x, y, z = (int(word, 16) for word in line.split("Value:")[1].split()[:3])
                kernel.threads = x * y * z
            is_next = False


def read_object(tool, file, is_wanted):
    """The kernels in it whose symbols are wanted."""
    kernels = {key: kernel for key, kernel in read_resources(tool.lines("--dump-resource-usage", file)).items()
               if is_wanted(kernel.symbol)}
    if kernels:
        read_code(tool.lines("--dump-sass", file), kernels)
        read_bounds(tool.lines("--dump-elf", file), kernels)
    return list(kernels.values())


# --- names

WRAPPERS = ("run_block",)  # templates of a kernel that is all what their name says
LEFT_OUT = re.compile(r"DeviceLane$|\w*Tiles<.*>$")  # of the arguments, where the others tell kernels apart


def split_arguments(text):
    """What stands between the commas of text, outside brackets."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "<({[") - (letter in ">)}]")
        if letter == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    return [*parts, text[begin:].strip()]


def closing(text, begin):
    """Where the bracket that opens at begin is closed."""
    depth = 0
    for i in range(begin, len(text)):
        depth += (text[i] in "<({[") - (text[i] in ">)}]")
        if depth == 0:
            return i
    return len(text)


def without_parameters(text):
    """A function's name and template arguments, and which of its lambdas it is beyond the first."""
    begin = 0
    while begin < len(text) and text[begin] != "(":
        begin = closing(text, begin) + 1 if text[begin] == "<" else begin + 1
    number = re.search(r"\{lambda\(.*\)#(\d+)\}", text[begin:])
    return text[:begin] + (f"#{number[1]}" if number and number[1] != "1" else "")


def parts_of_template(name):
    """The template's name, its arguments, and what follows: X<a, b>#2."""
    begin = name.find("<")
    if begin < 0:
        return name, [], ""
    end = closing(name, begin)
    return name[:begin], split_arguments(name[begin + 1:end]), name[end + 1:]


def kernel_of_kokkos(name):
    """What Kokkos starts in the kernel of this name, and the threads of its launch bounds; the name itself if it is none."""
    found = re.search(r"cuda_parallel_launch_\w+<Kokkos::Impl::Parallel\w+<", name)
    if not found:
        return name, None
    end = closing(name, found.end() - 1)
    bounds = re.match(r", (\d+)u, \d+u", name[end + 1:])
    return split_arguments(name[found.end():end])[0], int(bounds[1]) or None if bounds else None


def short_name(name, is_full=False):
    """Without namespaces and parameters, and without arguments that are left out."""
    name = re.sub(r"_INTERNAL_\w+?::|\(anonymous namespace\)::", "", name)
    name = re.sub(r"^(?:\w+ )+(?=\w)", "", without_parameters(name))  # the type that it returns
    name = re.sub(r"\b(?:[A-Za-z_]\w*::)+", "", name).replace(" >", ">")
    template, arguments, rest = parts_of_template(name)
    if template in WRAPPERS and arguments:
        template, arguments, rest = parts_of_template(arguments[0])
    arguments = [one for one in arguments if is_full or not LEFT_OUT.match(one)]
    return template + (f"<{', '.join(arguments)}>" if arguments else "") + rest


def name_kernels(kernels, filter_names):
    """Names them, and returns those that are not kernels of Kokkos alone. filter_names: a command such as c++filt."""
    text = "\n".join(kernel.symbol for kernel in kernels)
    names = subprocess.run([filter_names], input=text, capture_output=True, text=True, check=True).stdout.splitlines()
    ours = []
    for kernel, demangled in zip(kernels, names, strict=True):
        kernel.name, threads = kernel_of_kokkos(demangled)
        kernel.threads = kernel.threads or threads
        if not kernel.name.startswith("Kokkos"):
            ours.append(kernel)
    used = Counter((kernel.architecture, short_name(kernel.name)) for kernel in ours)
    for kernel in ours:
        kernel.name = short_name(kernel.name, is_full=used[kernel.architecture, short_name(kernel.name)] > 1)
    return ours


# --- loops

FMA_OF_TENSOR_INSTRUCTION = re.compile(r"^(HMMA|HGMMA)\.(?:(16)(8)(8|16)|(\d+)x(\d+)x(\d+))\b")


def multiplied_by(opcode):
    """Multiplications of one warp's tensor instruction; a warp has a quarter of what its group of four starts together."""
    found = FMA_OF_TENSOR_INSTRUCTION.match(opcode)
    if not found:
        return 0
    m, n, k = (int(number) for number in found.groups()[1:] if number)
    return m * n * k // (4 if found[1] == "HGMMA" else 1)


def successors(code):
    """Of every instruction, the places of those that may come next. Where a warp is divided is left out, and so are calls:
    they are the slow paths of numbers that are seldom."""
    place = {one.address: i for i, one in enumerate(code)}
    following = []
    for i, one in enumerate(code):
        base = one.opcode.split(".")[0]
        falls = [i + 1] if i + 1 < len(code) else []
        if base == "BRA" and ".DIV" not in one.opcode:
            target = re.search(r"0x([0-9a-f]+)\s*$", one.operands)
            jumps = [place[int(target[1], 16)]] if target and int(target[1], 16) in place else []
            is_conditional = one.is_conditional or "," in one.operands or re.match(r"!?U?P\d", one.operands)
            following.append(jumps + (falls if is_conditional else []))
        elif base in ("EXIT", "RET", "BRX", "JMX") and not one.is_conditional:
            following.append([])
        else:
            following.append(falls)
    return following


def circles(nodes, following):
    """The strongly connected sets of more than one node, and of one that follows itself, by Tarjan's algorithm."""
    nodes, number, low, stack, waiting, found = set(nodes), {}, {}, [], set(), []
    for root in sorted(nodes):
        if root in number:
            continue
        path = [(root, iter(following[root]))]
        number[root] = low[root] = len(number)
        stack.append(root)
        waiting.add(root)
        while path:
            node, rest = path[-1]
            other = next((one for one in rest if one in nodes and (one not in number or one in waiting)), None)
            if other is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    circle = set()
                    while node not in circle:
                        circle.add(stack.pop())
                    waiting -= circle
                    if len(circle) > 1 or node in following[node]:
                        found.append(circle)
            elif other in number:
                low[node] = min(low[node], number[other])
            else:
                number[other] = low[other] = len(number)
                stack.append(other)
                waiting.add(other)
                path.append((other, iter(following[other])))
    return found


def innermost(nodes, following, is_wanted):
    """The loops among nodes that have a wanted node and no loop within that has one."""
    loops = []
    for circle in circles(nodes, following):
        if not any(is_wanted(node) for node in circle):
            continue
        entries = {other for node in range(len(following)) if node not in circle for other in following[node]} & circle
        loops += innermost(circle - (entries or {min(circle)}), following, is_wanted) or [circle]
    return loops


def tensor_loops(code):
    """Counters of opcodes, one per innermost loop with tensor instructions, in the order of the code."""
    loops = innermost(range(len(code)), successors(code), lambda node: multiplied_by(code[node].opcode) > 0)
    return [Counter(code[node].opcode for node in loop) for loop in sorted(loops, key=min)]
