"""Families of modules with unknown sizes, a rule for each: see `symbolic_sizes`."""

from __future__ import annotations

from symbolic_sizes import Template

M = "x: T[<n>,<m>]"
NUMBER = "k = T[] constant(3)"
ZERO = "z = T[] constant(0)"
T = Template

TEMPLATES = (
    # ---- movement
    T("reshape-to-itself", f"{M}; T[<n>,<m>] reshape(x)"),
    T("reshape-of-reshape", "x: T[<n>,<m>,<k>]; a = T[<n*m>,<k>] reshape(x); T[<n*m>,1,<k>] reshape(a)"),
    T("transpose-nothing", f"{M}; T[<n>,<m>] transpose(x), dimensions={{0,1}}"),
    T("transpose-of-transpose", "x: T[<n>,<m>,<k>]; a = T[<m>,<k>,<n>] transpose(x), dimensions={1,2,0}; "
      "T[<k>,<m>,<n>] transpose(a), dimensions={1,0,2}"),
    T("transpose-of-ones", "x: T[<n>,1,<m>]; T[1,<n>,<m>] transpose(x), dimensions={1,0,2}"),
    T("transpose-of-same", "s: T[]; b = T[<n>,<m>] broadcast(s), dimensions={}; T[<m>,<n>] transpose(b), dimensions={1,0}"),
    T("reverse-nothing", "x: T[<n>,1]; T[<n>,1] reverse(x), dimensions={1}"),
    T("reverse-of-reverse", f"{M}; a = T[<n>,<m>] reverse(x), dimensions={{0}}; T[<n>,<m>] reverse(a), dimensions={{0,1}}"),
    T("iota-of-one", "T[<n>,1] iota(), iota_dimension=1"),
    T("reshape-iota", "i = T[<n>,1] iota(), iota_dimension=0; T[1,<n>] reshape(i)", kind="s32"),
    T("transpose-of-iota", "i = T[<n>,<m>] iota(), iota_dimension=0; T[<m>,<n>] transpose(i), dimensions={1,0}", kind="s32"),
    T("transpose-past-ones", f"{M}; t = T[<m>,<n>] transpose(x), dimensions={{1,0}}; r = T[1,<m>,<n>] reshape(t); "
      "T[1,<n>,<m>] transpose(r), dimensions={0,2,1}"),
    T("reshape-of-transpose", "x: T[<n*m*k>]; r = T[<n>,<m>,<k>] reshape(x); t = T[<k>,<n>,<m>] transpose(r), "
      "dimensions={2,0,1}; T[<k>,<n*m>] reshape(t)"),
    # ---- movers
    T("operation-on-reshapes", f"{M}; y: T[<n>,<m>]; a = T[<n*m>] reshape(x); b = T[<n*m>] reshape(y); T[<n*m>] multiply(a, b)"),
    T("concatenate-of-converts", "x: bf16[<n>,<k>]; y: bf16[<m>,<k>]; a = T[<n>,<k>] convert(x); b = T[<m>,<k>] convert(y); "
      "T[<n+m>,<k>] concatenate(a, b), dimensions={0}"),
    T("select-of-operations", "p: pred[<n>]; x: T[<n>]; y: T[<n>]; z: T[<n>]; a = T[<n>] maximum(x, z); "
      "b = T[<n>] maximum(y, z); T[<n>] select(p, a, b)"),
    T("select-of-reverse", f"p: pred[<n>]; x: T[<n>]; {NUMBER}; c = T[<n>] broadcast(k), dimensions={{}}; "
      "a = T[<n>] maximum(c, x); r = T[<n>] reverse(a), dimensions={0}; T[<n>] select(p, a, r)"),
    T("operation-on-slices", "x: T[<n+m>]; y: T[<n+m>]; a = T[<n>] slice(x), slice={[0:<n>]}; b = T[<n>] slice(y), "
      "slice={[0:<n>]}; c = T[<m>] slice(x), slice={[<n>:<n+m>]}; d = T[<m>] slice(y), slice={[<n>:<n+m>]}; "
      "e = T[<n>] add(a, b); f = T[<m>] add(c, d); (T[<n>], T[<m>]) tuple(e, f)"),
    # ---- broadcasts
    T("broadcast-to-itself", f"{M}; T[<m>,<n>] broadcast(x), dimensions={{1,0}}"),
    T("broadcast-of-broadcast", "x: T[<n>]; a = T[<n>,<m>] broadcast(x), dimensions={0}; T[<k>,<n>,<m>] broadcast(a), "
      "dimensions={1,2}"),
    T("broadcast-of-reshape", "x: T[<n>]; a = T[<n>,1] reshape(x); T[<n>,1,<m>] broadcast(a), dimensions={0,1}"),
    T("broadcast-of-ones", "x: T[<n>,1]; a = T[<n>,1] negate(x); T[<n>,1,<m>] broadcast(a), dimensions={0,1}"),
    T("reshape-of-broadcast", "x: T[<n>]; a = T[<n>,<m*k>] broadcast(x), dimensions={0}; T[1,<n>,<m>,<k>] reshape(a)"),
    T("transpose-of-broadcast", "x: T[<n>]; a = T[<n>,<m>] broadcast(x), dimensions={0}; T[<m>,<n>] transpose(a), "
      "dimensions={1,0}"),
    T("transpose-of-operation", "x: T[<n>,<m>]; y: T[<n>,<k>]; a = T[<n>,<m>,<k>] broadcast(x), dimensions={0,1}; "
      "b = T[<n>,<m>,<k>] broadcast(y), dimensions={0,2}; c = T[<n>,<m>,<k>] multiply(a, b); T[<n>,<k>,<m>] "
      "transpose(c), dimensions={0,2,1}"),
    T("operation-on-broadcasts", "x: T[<n>]; y: T[]; a = T[<n>,<m>] broadcast(x), dimensions={0}; b = T[<n>,<m>] "
      "broadcast(y), dimensions={}; T[<n>,<m>] maximum(a, b)"),
    # ---- slices
    T("slice-all", f"{M}; T[<n>,<m>] slice(x), slice={{[0:<n>],[0:<m>]}}"),
    T("slice-of-slice", "x: T[<n>]; a = T[<k>] slice(x), slice={[<s>:<s+(k-1)*3+1>:3]}; T[<j>] slice(a), "
      "slice={[<t>:<t+(j-1)*2+1>:2]}", ("s+(k-1)*3 < n", "t+(j-1)*2 < k"), least=1),
    T("slice-of-concatenate", "x: T[<n>]; y: T[<m>]; c = T[<n+m>] concatenate(x, y), dimensions={0}; T[<k>] slice(c), "
      "slice={[<n+s>:<n+s+(k-1)*2+1>:2]}", ("s+(k-1)*2 < m", "k >= 2"), least=1),
    T("slice-of-broadcast", "x: T[<n>]; a = T[<n>,<m>] broadcast(x), dimensions={0}; T[<k>,<j>] slice(a), "
      "slice={[<s>:<s+(k-1)*2+1>:2],[0:<j>]}", ("s+(k-1)*2 < n", "j <= m"), least=1),
    T("slice-of-pad", "x: T[<n>]; v: T[]; a = T[<n+l+h>] pad(x, v), padding=<l>_<h>; T[<k>] slice(a), "
      "slice={[<l+s>:<l+s+k>]}", ("s+k <= n", "k < n"), least=1),
    T("slice-of-iota", "i = T[<n>,<m>] iota(), iota_dimension=1; T[<k>,<j>] slice(i), slice={[<s>:<s+k>],[0:<j>]}",
      ("s+k <= n", "j <= m", "j >= 2", "k >= 2"), "s32", least=1),
    T("slice-of-reverse", "x: T[<n>]; a = T[<n>] reverse(x), dimensions={0}; T[<k>] slice(a), slice={[<s>:<s+(k-1)*2+1>:2]}",
      ("s+(k-1)*2 < n", "k >= 2"), least=1),
    T("slice-of-transpose", f"{M}; a = T[<m>,<n>] transpose(x), dimensions={{1,0}}; T[<k>,<j>] slice(a), "
      "slice={[<s>:<s+k>],[0:<(j-1)*2+1>:2]}", ("s+k <= m", "(j-1)*2 < n"), least=1),
    T("concatenate-of-one", "x: T[<n>]; y: T[0]; z: T[<m>]; T[<n+m>] concatenate(x, y, z), dimensions={0}"),
    T("concatenate-of-concatenate", "x: T[<n>]; y: T[<m>]; c = T[<n+m>] concatenate(x, y), dimensions={0}; T[<n+m+n>] "
      "concatenate(c, x), dimensions={0}"),
    T("concatenate-of-slices", "x: T[<n>]; a = T[<k>] slice(x), slice={[<s>:<s+k>]}; b = T[<j>] slice(x), "
      "slice={[<s+k>:<s+k+j>]}; T[<k+j>] concatenate(a, b), dimensions={0}", ("s+k+j <= n",), least=1),
    T("concatenate-of-same", "s: T[]; a = T[<n>] broadcast(s), dimensions={}; b = T[<m>] broadcast(s), dimensions={}; "
      "T[<n+m>] concatenate(a, b), dimensions={0}"),
    T("slice-between-parts", "x: T[<n>]; y: T[<m>]; c = T[<n+m+n>] concatenate(x, y, x), dimensions={0}; T[<m+n>] slice(c), "
      "slice={[<n>:<n+m+n>]}"),
    # ---- pads
    T("pad-nothing", "x: T[<n>]; v: T[]; T[<n>] pad(x, v), padding=0_0"),
    T("pad-of-empty", "x: T[0]; v: T[]; T[<l+h>] pad(x, v), padding=<l>_<h>"),
    T("pad-of-same", f"{NUMBER}; x = T[<n>] broadcast(k), dimensions={{}}; T[<n+l+h>] pad(x, k), padding=<l>_<h>"),
    T("pad-to-slice", "x: T[<n>]; v: T[]; T[<n-l-h>] pad(x, v), padding=<-l>_<-h>", ("l+h < n",), least=1),
    T("pad-of-pad", "x: T[<n>]; v: T[]; a = T[<n+l+h>] pad(x, v), padding=<l>_<h>; T[<n+l+h+c+d>] pad(a, v), "
      "padding=<c>_<d>"),
    T("pad-of-broadcast", f"x: T[<n>]; {ZERO}; b = T[<m>,<n>] broadcast(x), dimensions={{1}}; T[<m>,<n*2-1+l+h>] pad(b, z), "
      "padding=0_0x<l>_<h>_1"),
    T("pad-of-transpose", f"{M}; z: T[]; a = T[<m>,<n>] transpose(x), dimensions={{1,0}}; T[<m+l>,<n+h>] pad(a, z), "
      "padding=<l>_0x0_<h>"),
    # ---- indexing
    T("dynamic-slice-known", "x: T[<n>]; k = s32[] constant(<s>); T[<m>] dynamic-slice(x, k), dynamic_slice_sizes={<m>}",
      ("s+m <= n",), least=1),
    T("dynamic-slice-of-broadcast", "x: T[<n>]; i: s32[]; j: s32[]; b = T[<m>,<n>] broadcast(x), dimensions={1}; T[<k>,<n>] "
      "dynamic-slice(b, i, j), dynamic_slice_sizes={<k>,<n>}", ("k <= m",)),
    T("update-all", "x: T[<n>]; y: T[<n>]; i: s32[]; T[<n>] dynamic-update-slice(x, y, i)"),
    T("update-by-own-slice", "x: T[<n>]; i: s32[]; a = T[<k>] dynamic-slice(x, i), dynamic_slice_sizes={<k>}; T[<n>] "
      "dynamic-update-slice(x, a, i)", ("k < n",)),
    T("update-of-same", "s: T[]; y: T[<k>]; x = T[<n>] broadcast(s), dimensions={}; c = s32[] constant(<t>); T[<n>] "
      "dynamic-update-slice(x, y, c)", ("t+k < n",)),
    # ---- folds and products
    T("reduce-over-nothing", f"x: T[<n>,1]; {ZERO}; T[<n>] reduce(x, z), dimensions={{1}}, to_apply=add", kind="s32"),
    T("reduce-of-one-element", "x: T[<n>,1,<m>]; z: T[]; T[<n>,<m>] reduce(x, z), dimensions={1}, to_apply=max"),
    T("reduce-of-transpose", f"x: T[<n>,<m>,<k>]; {ZERO}; t = T[<k>,<n>,<m>] transpose(x), dimensions={{2,0,1}}; "
      "T[<n>,<m>] reduce(t, z), dimensions={0}, to_apply=add"),
    T("reduce-of-moved", f"x: T[<n>,<m>,<k>]; {ZERO}; t = T[<k>,<n>,<m>] transpose(x), dimensions={{2,0,1}}; "
      "a = T[<k>,<n>,<m>] tanh(t); T[<n>,<m>] reduce(a, z), dimensions={0}, to_apply=add"),
    T("reduce-of-reduce", f"x: T[<n>,<m>,<k>]; {ZERO}; a = T[<n>,<k>] reduce(x, z), dimensions={{1}}, to_apply=add; "
      "T[<n>] reduce(a, z), dimensions={1}, to_apply=add"),
    T("reduce-of-nothing", "x: T[<n>,0]; z: T[]; T[<n>] reduce(x, z), dimensions={1}, to_apply=add"),
    T("dot-of-transpose", "x: T[<k>,<n>]; y: T[<k>,<m>]; t = T[<n>,<k>] transpose(x), dimensions={1,0}; T[<n>,<m>] dot(t, y), "
      "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    T("transpose-of-dot", "x: T[<b>,<n>,<k>]; y: T[<b>,<k>,<m>]; d = T[<b>,<n>,<m>] dot(x, y), lhs_batch_dims={0}, "
      "rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}; T[<b>,<m>,<n>] transpose(d), "
      "dimensions={0,2,1}"),
    T("dot-of-one", "x: T[<n>,1]; y: T[1,<m>]; T[<n>,<m>] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    T("dot-of-nothing", "x: T[<n>,0]; y: T[0,<m>]; T[<n>,<m>] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
)  # fmt: skip
