# SPDX-License-Identifier: Apache-2.0
"""Programmatic dependent launch (sm_90 on): a kernel starts while the one before it still runs.

Its blocks are placed and its addresses computed early; `wait` holds it until everything that the
kernel before it wrote is visible. Both are no-ops in a launch without the attribute. PTX ISA,
griddepcontrol. Inline, because a build of Triton for AMD alone has no triton.language.extra.cuda.
"""

import triton
import triton.language as tl


@triton.jit
def wait():
    """Until the kernel before this one on the stream has ended and its writes are visible."""
    tl.inline_asm_elementwise(
        "griddepcontrol.wait; // $0", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def launch_next():
    """Let the next kernel be placed once every program got here; it still waits for this one."""
    tl.inline_asm_elementwise(
        "griddepcontrol.launch_dependents; // $0", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )
