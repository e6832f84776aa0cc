// The rules for the kernel log: a corpus of lines as drivers print them, each alone in a log of
// every format that people save, and lines that look like faults and are none.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "ops/validate/log_rules.h"
#include "ops/validate/machine.h"

namespace ff::validate {
namespace {

struct LogCase {
  const char* name;
  Verdict verdict;
  const char* text;
};
constexpr auto kFail = Verdict::fail, kDegraded = Verdict::degraded;
constexpr LogCase kFaults[] = {
    // Processors and firmware.
    {"log.mce", kFail, "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 5: be00"},
    {"log.mce", kFail, "Kernel panic - not syncing: Fatal machine check on current CPU"},
    {"log.mce", kFail, "mce: Not all CPUs entered broadcast exception handler"},
    {"log.mce", kFail,
     "mce: CPUs not responding to MCE broadcast (may include false positives): 3"},
    {"log.mce", kDegraded, "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: 9c0000400104"},
    {"log.mce", kDegraded, "mce: [Hardware Error]: Machine check events logged"},
    {"log.mce", kDegraded, "mce: CMCI storm detected: switching to poll mode"},
    {"log.mce", kFail, "mce: Uncorrected hardware memory error in user-access at 3f2a1c0"},
    {"log.mce", kFail, "MCE 0x3f2a1: Killing python3:4242 due to hardware memory corruption"},
    {"log.mce", kFail, "{1}[Hardware Error]: event severity: fatal"},
    {"log.mce", kFail, "{2}[Hardware Error]: event severity: recoverable"},
    {"log.mce", kFail, "[Hardware Error]: System Fatal error."},
    {"log.mce", kFail, "[Hardware Error]: Uncorrected, software containable error."},
    {"log.mce", kDegraded, "[Hardware Error]: Deferred error, no action required."},
    {"log.mce", kDegraded,
     "CPU12: Core temperature above threshold, cpu clock throttled (total events = 1)"},
    {"log.mce", kDegraded, "CPU7: Core temperature is above threshold, cpu clock is throttled"},
    {"log.mce", kDegraded,
     "mce: CPU0: Package temperature is above threshold, cpu clock is throttled (total = 81)"},
    {"log.mce", kFail,
     "thermal thermal_zone0: acpitz: critical temperature reached, shutting down"},
    {"log.mce", kFail, "NMI: PCI system error (SERR) for reason b1 on CPU 0."},
    {"log.mce", kFail, "NMI: IOCK error (debug interrupt?) for reason 61 on CPU 0."},
    {"log.mce", kFail, "SError Interrupt on CPU17, code 0x00000000be000411 -- SError"},
    {"log.mce", kFail, "Internal error: synchronous external abort: 0000000096000210 [#1] SMP"},
    {"log.mce", kFail, "Unhandled fault: Synchronous External Abort at 0x0000ffff9c000000"},
    {"log.mce", kDegraded, "Uhhuh. NMI received for unknown reason 2d on CPU 6."},
    {"log.mce", kFail, "smpboot: do_boot_cpu failed(-1) to wakeup CPU#12"},
    {"log.mce", kFail, "CPU12 failed to report alive state"},
    // Main memory.
    {"log.edac", kFail,
     "EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)"},
    {"log.edac", kFail, "EDAC skx MC2: 1 UE memory scrubbing error on DIMM_B2"},
    {"log.edac", kFail, "Memory failure: 0x12345: recovery action for dirty LRU page: Recovered"},
    {"log.edac", kDegraded, "RAS: Soft-offlining pfn: 0x3f2a1c"},
    {"log.edac", kDegraded,
     "Soft offlining pfn 0x3f2a1c at process virtual address 0x7f0000000000"},
    // PCIe.
    {"log.pcie", kFail,
     "pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0"},
    {"log.pcie", kFail,
     "pcieport 0000:3a:00.0: AER: Uncorrected (Non-Fatal) error received: id=0008"},
    {"log.pcie", kFail,
     "pcieport 0000:3a:00.0: AER: Multiple Uncorrected (Fatal) error received: 0000:3a:00.0"},
    {"log.pcie", kFail,
     "pcieport 0000:0c:00.0: AER: Uncorrectable (Fatal) error message received from 0000:0c:00.0"},
    {"log.pcie", kFail, "nvme 0000:c1:00.0: AER: device recovery failed"},
    {"log.pcie", kFail, "pcieport 0000:3a:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), x"},
    {"log.pcie", kFail, "nvme 0000:c1:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal)"},
    {"log.pcie", kFail, "pcieport 0000:0c:00.0: CXL Bus Error: severity=Uncorrectable (Fatal), x"},
    {"log.pcie", kFail,
     "pcieport 0000:20:01.1: DPC: containment event, status:0x1f01 source:0x0000"},
    {"log.pcie", kFail, "pcieport 0000:00:1c.0: pciehp: Slot(3): Link Down"},
    {"log.pcie", kFail, "pcieport 0000:00:1c.0: pciehp: Slot(12): Power fault"},
    {"log.pcie", kFail, "pcieport 0000:00:1c.0: pciehp: Slot(12): No link"},
    {"log.pcie", kFail,
     "pcieport 0000:00:1c.0: pciehp: Slot(12): Cannot train link: status 0x5001"},
    {"log.pcie", kFail, "pcieport 0000:00:1c.0: pciehp: Failed to check link status"},
    {"log.pcie", kFail,
     "nvidia 0000:41:00.0: can't change power state from D3cold to D0 (config space inaccessible)"},
    {"log.pcie", kFail,
     "nvme 0000:c1:00.0: Unable to change power state from D3cold to D0, device inaccessible"},
    {"log.pcie", kDegraded,
     "pci 0000:02:03.0: broken device, retraining non-functional downstream link at 2.5GT/s"},
    {"log.pcie", kFail, "AMD-Vi: Completion-Wait loop timed out"},
    {"log.pcie", kFail, "DMAR: VT-d detected Invalidation Time-out Error: SID 3b00"},
    {"log.pcie", kDegraded,
     "DMAR: [DMA Write NO_PASID] Request device [3b:00.0] fault addr 0xdead000 [fault reason "
     "0x05]"},
    {"log.pcie", kDegraded,
     "nvme 0000:c1:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0012 address=0xdead000]"},
    // NVMe disks.
    {"log.nvme", kDegraded, "nvme nvme0: I/O 12 QID 3 timeout, aborting"},
    {"log.nvme", kDegraded,
     "nvme nvme0: I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 3 timeout, aborting req_op:READ(0)"},
    {"log.nvme", kFail,
     "nvme0n1: Read(0x2) @ LBA 1953520, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR"},
    {"log.nvme", kFail,
     "nvme1n1: Write(0x1) @ LBA 0, 1 blocks, Write Fault (sct 0x2 / sc 0x80) DNR"},
    {"log.nvme", kFail, "nvme0c0n1: Read(0x2) @ LBA 8, 8 blocks, Unrecovered Read Error"},
    {"log.nvme", kDegraded,
     "nvme0n1: I/O Cmd(0x2) @ LBA 2048, 8 blocks, I/O Error (sct 0x3 / sc 0x71)"},
    {"log.nvme", kFail, "nvme nvme1: controller is down; will reset: CSTS=0xffffffff"},
    {"log.nvme", kFail, "nvme nvme1: Device not ready; aborting reset, CSTS=0x1"},
    {"log.nvme", kFail, "nvme nvme1: resetting controller due to persistent internal error"},
    {"log.nvme", kFail, "nvme nvme1: Identify Controller failed (-4)"},
    {"log.nvme", kFail, "nvme nvme1: Removing after probe failure status: -19"},
    {"log.nvme", kFail, "nvme nvme1: Disabling device after reset failure: -19"},
    {"log.nvme", kDegraded, "nvme nvme1: frozen state error detected, reset controller"},
    {"log.nvme", kDegraded, "nvme nvme1: Device shutdown incomplete; abort shutdown"},
    // Other disks.
    {"log.disk", kFail, "blk_update_request: critical medium error, dev sdb, sector 1234 op 0x0"},
    {"log.disk", kFail, "I/O error, dev sdb, sector 1234 op 0x0:(READ) flags 0x0 phys_seg 1"},
    {"log.disk", kFail, "Buffer I/O error on dev sdb1, logical block 0, async page read"},
    {"log.disk", kFail, "critical nexus error, dev sdb, sector 8 op 0x0:(READ)"},
    {"log.disk", kFail, "protection error, dev sdb, sector 8 op 0x0:(READ)"},
    {"log.disk", kFail, "timeout error, dev sdb, sector 8 op 0x0:(READ)"},
    {"log.disk", kFail, "sd 0:0:0:0: [sdb] tag#12 Sense Key : Medium Error [current] "},
    {"log.disk", kFail, "sd 0:0:0:0: [sdb] tag#12 Sense Key : Hardware Error [current] "},
    {"log.disk", kFail, "sd 0:0:0:0: [sdb] tag#12 Add. Sense: Unrecovered read error"},
    {"log.disk", kFail, "sd 0:0:0:0: rejecting I/O to offline device"},
    {"log.disk", kFail, "sd 0:0:0:0: Device offlined - not ready after error recovery"},
    {"log.disk", kFail,
     "sd 0:0:0:0: [sdb] tag#12 FAILED Result: hostbyte=DID_NO_CONNECT driverbyte=DRIVER_OK"},
    {"log.disk", kDegraded,
     "sd 0:0:0:0: [sdb] tag#12 FAILED Result: hostbyte=DID_BAD_TARGET driverbyte=DRIVER_OK"},
    {"log.disk", kDegraded, "sd 0:0:0:0: [sdb] tag#12 FAILED Result: hostbyte=DID_TIME_OUT"},
    {"log.disk", kDegraded, "sd 0:0:0:0: [sdb] tag#12 FAILED Result: hostbyte=DID_ERROR"},
    {"log.disk", kDegraded, "sd 0:0:0:0: [sdb] tag#12 FAILED Result: hostbyte=DID_SOFT_ERROR"},
    {"log.disk", kDegraded,
     "sd 0:0:0:0: [sdb] tag#12 FAILED Result: hostbyte=DID_TRANSPORT_DISRUPTED"},
    {"log.disk", kDegraded, "sd 0:0:0:0: [sdb] tag#12 Sense Key : Aborted Command [current] "},
    {"log.disk", kDegraded, "sd 0:0:0:0: attempting task abort!scmd(0x00000000a5c2), outstanding"},
    {"log.disk", kDegraded, "ata1.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x0"},
    {"log.disk", kDegraded, "ata1.00: failed command: READ FPDMA QUEUED"},
    {"log.disk", kFail, "ata1.00: error: { UNC }"},
    {"log.disk", kFail, "ata1: COMRESET failed (errno=-16)"},
    {"log.disk", kFail, "ata1: reset failed, giving up"},
    {"log.disk", kFail, "ata1.00: failed to IDENTIFY (I/O error, err_mask=0x4)"},
    {"log.disk", kFail, "ata1.00: revalidation failed (errno=-5)"},
    {"log.disk", kFail, "ata1.00: disable device"},
    {"log.disk", kFail, "ata1.00: disabled"},
    {"log.disk", kDegraded, "ata1: limiting SATA link speed to 3.0 Gbps"},
    {"log.disk", kDegraded, "ata1.00: NCQ disabled due to excessive errors"},
    {"log.disk", kDegraded, "ata1.00: qc timeout after 5000 msecs (cmd 0xec)"},
    {"log.disk", kDegraded, "ata1: lost interrupt (Status 0x50)"},
    {"log.disk", kDegraded, "ata1: link is slow to respond, please be patient (ready=0)"},
    {"log.disk", kDegraded, "ata1: hard resetting link"},
    {"log.disk", kFail, "mpt3sas_cm0: fault_state(0x2623)!"},
    {"log.disk", kFail, "mpt3sas_cm0: SAS host is non-operational !!!!"},
    {"log.disk", kFail, "megaraid_sas 0000:18:00.0: FW in FAULT state Fault code:0x10000"},
    {"log.disk", kFail, "megaraid_sas 0000:18:00.0: Adapter is OFFLINE from megasas_wait"},
    {"log.disk", kFail, "hpsa 0000:08:00.0: controller lockup detected: 0x00130000 after 30"},
    {"log.disk", kFail, "smartpqi 0000:43:00.0: controller offline"},
    {"log.disk", kFail, "smartpqi 0000:43:00.0: controller is offline: status code 0x6100c"},
    {"log.disk", kFail, "md/raid1:md0: Disk failure on sdb1, disabling device."},
    {"log.disk", kFail, "md/raid:md127: not enough operational devices (2/4 failed)"},
    {"log.disk", kFail, "md/raid:md0: Cannot continue operation (2/4 failed)."},
    {"log.disk", kFail, "md/raid:md0: read error not correctable (sector 123 on sdb1)."},
    {"log.disk", kFail, "md: kicking non-fresh sdb1 from array!"},
    {"log.disk", kFail, "md: super_written gets error=-5"},
    {"log.disk", kFail, "device-mapper: raid: Failed to read superblock of device at position 1"},
    {"log.disk", kDegraded, "md/raid1:md0: read error corrected (8 sectors at 2048 on sdb1)"},
    {"log.disk", kDegraded, "md/raid1:md0: redirecting sector 2048 to other mirror: sda1"},
    {"log.disk", kFail,
     "device-mapper: thin: 253:2: reached low water mark: switching pool to out-of-data-space "
     "mode"},
    {"log.disk", kFail, "device-mapper: thin: 253:2: switching pool to read-only mode"},
    {"log.disk", kFail, "device-mapper: verity: 253:0: data block 12 is corrupted"},
    {"log.disk", kFail, "device-mapper: crypt: INTEGRITY AEAD ERROR, sector 2048"},
    {"log.disk", kDegraded, "device-mapper: multipath: 253:0: Failing path 8:16."},
    // File systems.
    {"log.fs", kFail, "EXT4-fs error (device sda1): ext4_lookup:1785: inode #2: comm ls: deleted"},
    {"log.fs", kFail, "EXT3-fs error (device sda1): ext3_lookup: deleted inode referenced: 12"},
    {"log.fs", kFail, "EXT2-fs error (device sda1): ext2_check_page: bad entry in directory #2"},
    {"log.fs", kFail,
     "EXT4-fs (sda1): warning: mounting fs with errors, running e2fsck is advised"},
    {"log.fs", kDegraded, "EXT4-fs (sda1): error count since last fsck: 3"},
    {"log.fs", kDegraded, "EXT4-fs (sda1): initial error at time 1764028800: ext4_lookup:1785"},
    {"log.fs", kFail, "EXT4-fs (sda1): Remounting filesystem read-only"},
    {"log.fs", kFail, "FAT-fs (sdb1): Filesystem has been set read-only"},
    {"log.fs", kFail, "BTRFS info (device sdc): forced readonly"},
    {"log.fs", kFail,
     "EXT4-fs warning (device sda1): ext4_end_bio:343: I/O error 10 writing to inode 12"},
    {"log.fs", kFail, "EXT4-fs (sda1): I/O error while writing superblock"},
    {"log.fs", kFail, "EXT4-fs (sda1): Delayed block allocation failed for inode 12 at offset 0"},
    {"log.fs", kFail, "JBD2: Detected IO errors while flushing file data on sda1-8"},
    {"log.fs", kFail, "Aborting journal on device sda1-8."},
    {"log.fs", kFail, "EXT4-fs (sda1): ext4_journal_check_start: JBD2: Detected aborted journal"},
    {"log.fs", kFail, "XFS (sdb1): Metadata corruption detected at xfs_agi_verify+0x5e/0x120"},
    {"log.fs", kFail, "XFS (sdb1): Metadata CRC error detected at xfs_agi_read_verify+0x9e/0xf0"},
    {"log.fs", kFail, "XFS (sdb1): Unmount and run xfs_repair"},
    {"log.fs", kFail, "XFS (sdb1): Internal error i != 1 at line 1853 of file fs/xfs/xfs_alloc.c"},
    {"log.fs", kFail,
     "XFS (sdb1): metadata I/O error in \"xfs_buf_ioend\" at daddr 0x1 len 8 error 5"},
    {"log.fs", kFail, "XFS (sdb1): writeback error on inode 4242, offset 0, sector 2048"},
    {"log.fs", kFail, "XFS (sdb1): xfs_do_force_shutdown(0x2) called. Shutting down filesystem"},
    {"log.fs", kFail, "XFS (sdb1): Filesystem has been shut down due to log error (0x2)."},
    {"log.fs", kFail, "BTRFS critical (device sdc): corrupt leaf: root=1 block=1 slot=1"},
    {"log.fs", kFail, "BTRFS error (device sdc): bdev /dev/sdc errs: wr 1, rd 0, flush 0"},
    {"log.fs", kFail, "BTRFS: error (device sdc) in btrfs_commit_transaction:2414: errno=-5 IO"},
    {"log.fs", kFail, "BTRFS warning (device sdc): csum failed root 5 ino 257 off 0 csum 0x1"},
    {"log.fs", kFail, "BTRFS warning (device sdc): checksum verify failed on logical 1 mirror 1"},
    {"log.fs", kFail, "BTRFS warning (device sdc): lost page write due to IO error on /dev/sdc"},
    {"log.fs", kFail, "BTRFS warning (device sdc): i/o error at logical 1 on dev /dev/sdc"},
    {"log.fs", kFail, "SQUASHFS error: zlib decompression failed, data probably corrupt"},
    {"log.fs", kFail,
     "WARNING: Pool 'tank' has encountered an uncorrectable I/O failure and has been suspended."},
    {"log.fs", kFail, "zio pool=tank vdev=/dev/sdb1 error=5 type=1 offset=270336 size=8192"},
    {"log.fs", kDegraded, "nfs: server nas1 not responding, still trying"},
    {"log.fs", kDegraded, "CIFS: VFS: \\\\nas1 has not responded in 180 seconds. Reconnecting..."},
    {"log.fs", kDegraded, "LustreError: 4242:0:(osc_lock.c:12:osc_lock()) LBUG"},
    {"log.fs", kDegraded,
     "Lustre: fs-OST0001-osc-ffff: Connection to fs-OST0001 (at 10.0.0.1@o2ib) was lost; in "
     "progress"},
    // InfiniBand and Ethernet.
    {"log.ib", kFail,
     "mlx5_core 0000:61:00.0: poll_health:800:(pid 0): device's health compromised - reached miss"},
    {"log.ib", kFail, "mlx5_core 0000:61:00.0: poll_health:1103:(pid 0): Fatal error 1 detected"},
    {"log.ib", kFail,
     "mlx5_core 0000:61:00.0: print_health_info:431: Health issue observed, firmware internal "
     "error"},
    {"log.ib", kFail,
     "mlx5_core 0000:61:00.0: mlx5_handle_bad_state:264: handling bad device here"},
    {"log.ib", kFail,
     "mlx5_core 0000:61:00.0: wait_func:1151:(pid 7): ACCESS_REG(0x805) timeout. Will cause a leak "
     "of a command resource"},
    {"log.ib", kFail, "mlx4_core 0000:61:00.0: Internal error detected:"},
    {"log.ib", kFail, "igb 0000:03:00.0 eth0: PCIe link lost, device now detached"},
    {"log.ib", kFail, "ixgbe 0000:03:00.0: Adapter removed"},
    {"log.ib", kFail, "bnxt_en 0000:19:00.0 ens1f0: Detected firmware fatal condition, resetting"},
    {"log.ib", kFail, "ice 0000:98:00.0: Rebuild failed, unload and reload driver"},
    {"log.ib", kDegraded,
     "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature"},
    {"log.ib", kDegraded,
     "mlx5_core 0000:12:00.0: mlx5_pcie_event:299: Detected insufficient power on the PCIe slot "
     "(27W)."},
    {"log.ib", kDegraded,
     "mlx5_core 0000:12:00.0: temp_warn:181: High temperature on sensors with bit set 0x0 0x1"},
    {"log.ib", kDegraded, "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out"},
    {"log.ib", kDegraded, "mlx5_core 0000:12:00.0 eth0: TX timeout detected"},
    {"log.ib", kDegraded, "igb 0000:03:00.0: Detected Tx Unit Hang"},
    {"log.ib", kDegraded, "ib0: transmit timeout: latency 1234 msecs"},
    {"log.ib", kDegraded, "ena 0000:00:05.0 eth0: Keep alive watchdog timeout."},
    {"log.ib", kDegraded, "mlx5_core 0000:41:00.0 enp65s0f0np0: Link down"},
    {"log.ib", kDegraded, "mlx5_core 0000:08:00.0 mlx5_0: Port: 1 Link DOWN"},
    {"log.ib", kDegraded, "ice 0000:98:00.0 ens801f0: NIC Link is Down"},
    {"log.ib", kDegraded, "tg3 0000:02:00.0 eth0: Link is down"},
    {"log.ib", kDegraded, "bond0: (slave eth1): link status definitely down, disabling slave"},
    // GPUs.
    {"log.gpu", kFail, "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."},
    {"log.gpu", kFail, "NVRM: fallen off the bus and is not responding to commands."},
    {"log.gpu", kFail, "NVRM: system has fallen off the bus and is not responding to commands."},
    {"log.gpu", kFail,
     "NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST]"},
    {"log.gpu", kFail, "NVRM: GPU 0000:21:00.0: RmInitAdapter failed! (0x62:0xffff:2351)"},
    {"log.gpu", kFail, "NVRM: GPU 0000:21:00.0: rm_init_adapter failed, device minor number 0"},
    {"log.gpu", kFail, "nvidia 0000:02:00.0: probe with driver nvidia failed with error -1"},
    {"log.gpu", kFail, "nvidia: probe of 0000:02:00.0 failed with error -1"},
    {"log.gpu", kFail, "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:"},
    {"log.gpu", kFail, "NVRM: None of the NVIDIA devices were initialized."},
    {"log.gpu", kFail, "NVRM: GPU0 Assertion failed: Reset required [NV_ERR_RESET_REQUIRED]"},
    {"log.gpu", kFail, "NVRM: A GPU crash dump has been created. If possible, please run"},
    {"log.gpu", kFail, "NVRM: _issueRpcAndWait: rpcRecvPoll timedout for fn 76!"},
    {"log.gpu", kDegraded,
     "NVRM: API mismatch: the client has the version 550.54, but this kernel"},
    {"log.gpu", kFail,
     "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"},
    {"log.gpu", kDegraded,
     "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted"},
    {"log.gpu", kDegraded,
     "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Severity 0 Engine instance 32"},
    {"log.gpu", kDegraded, "amdgpu 0000:c3:00.0: amdgpu: GPU reset begin!"},
    {"log.gpu", kDegraded, "amdgpu 0000:c3:00.0: amdgpu: GPU reset succeeded, trying to resume"},
    {"log.gpu", kDegraded, "amdgpu 0000:c3:00.0: amdgpu: GPU reset(2) succeeded!"},
    {"log.gpu", kDegraded,
     "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=5197"},
    {"log.gpu", kDegraded,
     "i915 0000:00:02.0: [drm] GPU HANG: ecode 12:1:8ed9fff3, in Xorg [1889]"},
    {"log.gpu", kFail, "amdgpu 0000:c3:00.0: amdgpu: GPU reset(2) failed"},
    {"log.gpu", kFail, "amdgpu 0000:c3:00.0: amdgpu: GPU reset end with ret = -110"},
    {"log.gpu", kFail, "[drm] amdgpu: GPU Recovery Failed: -110"},
    {"log.gpu", kFail,
     "amdgpu 0000:c3:00.0: amdgpu: 1 uncorrectable hardware errors detected in umc block"},
    {"log.gpu", kFail, "amdgpu 0000:c3:00.0: amdgpu: Fatal error during GPU init"},
    {"log.gpu", kFail, "amdgpu 0000:c3:00.0: amdgpu: device lost from bus!"},
    {"log.gpu", kDegraded,
     "amdgpu 0000:c3:00.0: amdgpu: ERROR: GPU over temperature range(SW CTF) detected!"},
    // The kernel itself.
    {"log.kernel", kFail, "kernel BUG at fs/ext4/inode.c:2751!"},
    {"log.kernel", kFail,
     "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009"},
    {"log.kernel", kFail, "BUG: unable to handle page fault for address: ffffb3f1c0a41000"},
    {"log.kernel", kFail, "BUG: kernel NULL pointer dereference, address: 0000000000000018"},
    {"log.kernel", kFail,
     "Unable to handle kernel paging request at virtual address dead000000000108"},
    {"log.kernel", kFail, "Oops: 0002 [#1] PREEMPT SMP NOPTI"},
    {"log.kernel", kFail, "Internal error: Oops - BUG: 00000000f2000800 [#1] SMP"},
    {"log.kernel", kFail,
     "general protection fault, probably for non-canonical address 0xdead000000000100: 0000 [#1]"},
    {"log.kernel", kFail, "invalid opcode: 0000 [#1] PREEMPT SMP NOPTI"},
    {"log.kernel", kFail, "double fault: 0000 [#1] SMP NOPTI"},
    {"log.kernel", kFail, "stack segment: 0000 [#1] SMP PTI"},
    {"log.kernel", kFail, "divide error: 0000 [#1] SMP PTI"},
    {"log.kernel", kFail, "BUG: Bad page state in process python3  pfn:3f2a1c"},
    {"log.kernel", kFail, "BUG: Bad rss-counter state mm:00000000a5c2 type:MM_ANONPAGES val:1"},
    {"log.kernel", kFail, "list_add corruption. prev->next should be next (ffff), but was dead."},
    {"log.kernel", kFail, "list_del corruption, ffff88810000->next is LIST_POISON1"},
    {"log.kernel", kFail, "Corrupted low memory at 00000000c0de (2a10 phys) = 00098d39"},
    {"log.kernel", kFail, "watchdog: Watchdog detected hard LOCKUP on cpu 3"},
    {"log.kernel", kDegraded, "watchdog: BUG: soft lockup - CPU#7 stuck for 22s! [kworker/7:1:33]"},
    {"log.kernel", kDegraded, "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:"},
    {"log.kernel", kDegraded, "rcu: INFO: rcu_preempt self-detected stall on CPU"},
    {"log.kernel", kDegraded,
     "rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 3-... }"},
    {"log.kernel", kDegraded, "rcu: rcu_sched kthread starved for 5252 jiffies! g1 f0x0"},
    {"log.kernel", kDegraded,
     "BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 34s!"},
    {"log.kernel", kDegraded, "BUG: KASAN: use-after-free in ext4_inode+0x1/0x2"},
    {"log.kernel", kDegraded, "BUG: scheduling while atomic: swapper/3/0/0x00000100"},
    {"log.kernel", kDegraded, "BUG: sleeping function called from invalid context at mm/slab.h:1"},
    {"log.kernel", kDegraded, "INFO: task jbd2/sda1-8:321 blocked for more than 120 seconds."},
    {"log.kernel", kDegraded, "Out of memory: Killed process 4242 (python3) total-vm:1kB"},
    {"log.kernel", kDegraded, "Out of memory: Kill process 4242 (python3) score 900"},
    // NVIDIA's codes (xid_test.cc).
    {"log.xid", kFail, "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."},
    {"log.xid", kFail,
     "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU "
     "Reset Required)"},
    {"log.xid", kFail,
     "NVRM: Xid (PCI:0000:04:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x00000011 0x0)"},
    {"log.xid", kDegraded, "NVRM: Xid (PCI:0000:3b:00): 32, pid=4242, Channel ID 00000008"},
};

// Errors that hardware has corrected: few are normal.
constexpr LogCase kCorrected[] = {
    {"log.mce", kDegraded, "{3}[Hardware Error]: event severity: corrected"},
    {"log.mce", kDegraded, "[Hardware Error]: Corrected error, no action required."},
    {"log.edac", kDegraded, "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0"},
    {"log.edac", kDegraded, "EDAC MC0: 1 CE on mc#0csrow#3channel#0 (csrow:3 channel:0 page:0x1)"},
    {"log.pcie", kDegraded, "pcieport 0000:3a:00.0: PCIe Bus Error: severity=Corrected, type=x"},
    {"log.pcie", kDegraded, "nvidia 0000:21:00.0: PCIe Bus Error: severity=Correctable, type=x"},
    {"log.gpu", kDegraded,
     "amdgpu 0000:c3:00.0: amdgpu: 2 correctable hardware errors detected in total in gfx block"},
};

constexpr const char* kBenign[] = {
    "Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14))",
    "Command line: BOOT_IMAGE=/boot/vmlinuz root=UUID=1 ro errors=remount-ro panic=10",
    "nvme nvme0: 8/0/0 default/read/poll queues",
    "nvme nvme0: Shutdown timeout set to 10 seconds",
    "nvme nvme0: missing or invalid SUBNQN field.",
    "nvme0: Identify(0x6), Invalid Field in Command (sct 0x0 / sc 0x2) MORE DNR",
    "nvme0: Admin Cmd(0x6), I/O Error (sct 0x0 / sc 0x2) MORE DNR",
    "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0",
    "EDAC MC: Ver: 3.0.0",
    "EDAC sbridge: Seeking for: PCI ID 8086:6fa0",
    "mce: CPU0: Thermal monitoring enabled (TM1)",
    "mce: CPU0: Core temperature/speed normal",
    "MCE: In-kernel MCE decoding enabled.",
    "mce: CMCI storm subsided: switching to interrupt mode",
    "HEST: Enabling Firmware First mode for corrected errors.",
    "GHES: APEI firmware first mode is enabled by APEI bit and WHEA _OSC.",
    "ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PCI0], AE_NOT_FOUND "
    "(20220331/dswload2)",
    "ACPI Error: Aborting method \\_SB.PMI0._GHL due to previous error (AE_NOT_EXIST)",
    "pcieport 0000:00:1c.0: AER: enabled with IRQ 24",
    "pcieport 0000:00:1c.0: AER: Corrected error received: 0000:00:1c.0",
    "pcieport 0000:00:1c.0: AER: Correctable error message received from 0000:00:1c.0",
    "pcieport 0000:00:1c.0: DPC: enabled with IRQ 24",
    "pcieport 0000:00:1c.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+",
    "pcieport 0000:00:1c.0: pciehp: Slot #3 AttnBtn- PwrCtrl- MRL- AttnInd- PwrInd- HotPlug+",
    "pcieport 0000:00:1c.0: pciehp: Slot(3): Link Up",
    "pci 0000:41:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x16 link",
    "pci 0000:41:00.0: BAR 6: failed to assign [mem size 0x00080000 pref]",
    "DMAR: Intel(R) Virtualization Technology for Directed I/O",
    "AMD-Vi: Interrupt remapping enabled",
    "mlx5_core 0000:41:00.0 enp65s0f0np0: Link up",
    "mlx5_core 0000:41:00.0 mlx5_0: Port: 1 Link ACTIVE",
    "mlx5_core 0000:61:00.0: Port module event: module 0, Cable plugged",
    "mlx5_core 0000:61:00.0: mlx5_pcie_event:301: PCIe slot power capability was not advertised.",
    "IPv6: ADDRCONF(NETDEV_UP): eth0: link is not ready",
    "igb 0000:03:00.0 eth0: igb: eth0 NIC Link is Up 1000 Mbps Full Duplex, Flow Control: RX/TX",
    "br0: port 1(veth12) entered disabled state",
    "EXT4-fs (sda1): mounted filesystem with ordered data mode. Quota mode: none.",
    "EXT4-fs (sda1): re-mounted. Opts: errors=remount-ro",
    "EXT4-fs (sda1): recovery complete",
    "EXT4-fs (sda1): orphan cleanup on readonly fs",
    "EXT4-fs warning (device sda1): ext4_dx_add_entry:2516: Directory index full, reach max htree",
    "XFS (nvme0n1): Ending clean mount",
    "XFS (nvme0n1): Starting recovery (logdev: internal)",
    "XFS (nvme0n1): Unmounting Filesystem",
    "BTRFS info (device sdc): has skinny extents",
    "BTRFS info (device sdc): scrub: finished on devid 1 with status: 0",
    "FAT-fs (sdb1): Volume was not properly unmounted. Some data may be corrupt. Please run fsck.",
    "nfs: server nas1 OK",
    "NFSD: Using nfsdcld client tracking operations.",
    "md/raid1:md0: active with 2 out of 2 mirrors",
    "md: data-check of RAID array md0",
    "md: resync of RAID array md0",
    "md0: detected capacity change from 0 to 1953260928",
    "sd 0:0:0:0: [sda] Write Protect is off",
    "sd 0:0:0:0: [sda] tag#12 Sense Key : Illegal Request [current] ",
    "sd 0:0:0:0: [sda] tag#12 Sense Key : Recovered Error [current] ",
    "critical target error, dev sda, sector 0 op 0x3:(DISCARD) flags 0x800 phys_seg 1",
    "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0",
    "I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
    "Buffer I/O error on dev fd0, logical block 0, async page read",
    "Buffer I/O error on dev sr0, logical block 0, async page read",
    "Buffer I/O error on device fd0, logical block 0",
    "Buffer I/O error on device sr0, logical block 0",
    "ata1: SATA max UDMA/133 abar m2048@0x92e80000 port 0x92e80100 irq 134",
    "ata1: SATA link down (SStatus 0 SControl 300)",
    "ata1.00: supports DRM functions and may not be fully accessible",
    "ata1.00: configured for UDMA/133",
    "ata2: DUMMY",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
    "NVRM: GPU at PCI:0000:3b:00: GPU-1d2d5b4e-0b6e-4f0c-9b58-0d7c3c6ed2f5",
    "NVRM: GPU Board Serial Number: 1322321043914",
    "NVRM: The NVIDIA GPU 0000:41:00.0",
    "NVRM: (PCI ID: 10de:20b0) installed in this system has",
    "nvidia-nvswitch0: open (major=510)",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 510",
    "[drm] Initialized nvidia-drm 0.0.0 20160202 for 0000:3b:00.0 on minor 1",
    "[drm] amdgpu kernel modesetting enabled.",
    "amdgpu 0000:c3:00.0: amdgpu: SMU is initialized successfully!",
    "Memory cgroup out of memory: Killed process 7 (x) total-vm:1kB, anon-rss:1kB",
    "traps: python3[4242] general protection fault ip:7f sp:7f error:0 in libc.so.6[7f+1]",
    "traps: a.out[4242] trap invalid opcode ip:7f sp:7f error:0 in a.out[7f+1]",
    "python3[4242]: segfault at 8 ip 00007f sp 00007f error 4 in libc.so.6[7f+1]",
    "perf: interrupt took too long (2501 > 2500), lowering kernel.perf_event_max_sample_rate",
    "hpet: lost 5 rtc interrupts",
    "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
    "rcu: Hierarchical RCU implementation.",
    "Kernel Offset: disabled",
    "random: crng init done",
    "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
    "usb 1-1: device descriptor read/64, error -110",
    "TCP: request_sock_TCP: Possible SYN flooding on port 80. Sending cookies.",
    "audit: type=1400 audit(1764028800.1:12): apparmor=\"DENIED\" operation=\"open\"",
};

// The text as each tool saves it, an hour before the test's now.
std::vector<std::pair<const char*, std::string>> saved(const std::string& text) {
  return {{"dmesg", "[ 4000.500000] " + text},
          {"dmesg -r", "<3>[ 4000.500000] " + text},
          {"dmesg -x", "kern  :err   : [ 4000.500000] " + text},
          {"dmesg -T", "[Mon Nov 23 11:00:00 2026] " + text},
          {"dmesg --time-format iso", "2026-11-23T11:00:00,500000+00:00 " + text},
          {"printk.caller", "[ 4000.500000][ T4242] " + text},
          {"journalctl", "Nov 23 11:00:00 node7 kernel: " + text},
          {"journalctl -o short-precise", "Nov 23 11:00:00.500000 node7 kernel: " + text},
          {"journalctl -o short-iso", "2026-11-23T11:00:00+0000 node7 kernel: " + text},
          {"journalctl -o short-full", "Mon 2026-11-23 11:00:00 UTC node7 kernel: " + text},
          {"journalctl -o short-unix", "1795431600.500000 node7 kernel: " + text},
          {"journalctl -o short-monotonic", "[ 4000.500000] node7 kernel: " + text},
          {"syslog", "Nov 23 11:00:00 node7 kernel: [ 4000.500000] " + text},
          {"syslog with level", "Nov 23 11:00:00 node7 kern.err kernel: [ 4000.500000] " + text},
          {"syslog with ISO time", "2026-11-23T11:00:00.500000+00:00 node7 kernel: " + text},
          {"/dev/kmsg", "3,1234,4000500000,-;" + text}};
}

std::vector<Finding> findings_of(const std::string& line, int times = 1) {
  LogAnalyzer analyzer;
  for (int i = 0; i < times; i++) analyzer.add(parse_kernel_log_line(line, kNowNs));
  EXPECT_TRUE(analyzer.is_kernel_log()) << line;
  return analyzer.findings();
}

// The only finding that is no pass; none: a pass.
Finding bad_one(const std::vector<Finding>& findings) {
  Finding bad{.verdict = Verdict::pass};
  int count = 0;
  for (const Finding& one : findings) {
    if (one.verdict == Verdict::pass) continue;
    bad = one;
    count++;
  }
  EXPECT_LE(count, 1) << told(bad);
  return bad;
}

class LogRulesTest : public testing::Test {
 protected:
  LogRulesTest() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
};

TEST_F(LogRulesTest, EachFaultAloneIsFoundInEveryFormat) {
  for (const LogCase& one : kFaults) {
    for (const auto& [format, line] : saved(one.text)) {
      const Finding bad = bad_one(findings_of(line));
      EXPECT_EQ(bad.name, one.name) << format << ": " << line;
      EXPECT_TRUE(is_finding(bad, one.verdict, "")) << format << ": " << line;
    }
  }
}

TEST_F(LogRulesTest, EveryPatternIsInALineOfADriver) {
  std::vector<const char*> texts;
  for (const LogCase& one : kFaults) texts.push_back(one.text);
  for (const LogCase& one : kCorrected) texts.push_back(one.text);
  for (const char* const text : kBenign) texts.push_back(text);
  for (const LogRule& rule : log_rules()) {
    for (const char* const pattern : rule.patterns) {
      if (pattern == nullptr) continue;
      const bool met = std::ranges::any_of(texts, [&](const char* const text) {
        const LogRule* const first = find_rule(text);
        const bool decides = rule.verdict == Verdict::skipped ? first == nullptr : first == &rule;
        return decides && matches_pattern(text, pattern);
      });
      EXPECT_TRUE(met) << rule.about << ": no line has '" << pattern << "'";
    }
    if (rule.verdict == Verdict::skipped) continue;
    EXPECT_NE(std::string_view(rule.source), "") << rule.about;
    EXPECT_NE(std::string_view(rule.hint), "") << rule.about;
  }
}

TEST_F(LogRulesTest, WhatOnlyLooksLikeAFaultIsNone) {
  for (const char* const text : kBenign) {
    for (const auto& [format, line] : saved(text)) {
      EXPECT_EQ(bad_one(findings_of(line)).verdict, Verdict::pass) << format << ": " << line;
    }
  }
}

// mcelog replaces a DIMM from ten in 24 hours.
TEST_F(LogRulesTest, FewCorrectedErrorsAreNormalAndManyAreNot) {
  for (const LogCase& one : kCorrected) {
    for (const auto& [format, line] : saved(one.text)) {
      const auto few = findings_of(line, 10);
      EXPECT_EQ(bad_one(few).verdict, Verdict::pass) << format << ": " << line;
      const auto told_of = std::ranges::find_if(
          few, [&](const Finding& finding) { return finding.name == one.name && finding.value; });
      ASSERT_NE(told_of, few.end());
      EXPECT_EQ(told_of->value, 10) << "they are counted nevertheless";
      const Finding bad = bad_one(findings_of(line, 11));
      EXPECT_EQ(bad.name, one.name) << format << ": " << line;
      EXPECT_TRUE(is_finding(bad, one.verdict, "11 times")) << format << ": " << line;
    }
  }
}

TEST_F(LogRulesTest, CorrectedErrorsAreCountedWithin24Hours) {
  const auto verdict_of = [](int hours_between, const char* text, int lines) {
    LogAnalyzer analyzer;
    for (int i = 0; i < lines; i++) {
      analyzer.add({.boot_ns = int64_t{i} * hours_between * 3600 * kSecond, .text = text});
    }
    return bad_one(analyzer.findings()).verdict;
  };
  const char* const one = "EDAC MC0: 1 CE memory read error on DIMM_B2";
  EXPECT_EQ(verdict_of(3, one, 100), Verdict::pass);
  EXPECT_EQ(verdict_of(2, one, 100), Verdict::degraded);
  // A line may stand for many.
  EXPECT_EQ(verdict_of(1, "EDAC MC0: 10 CE memory read error on DIMM_B2", 1), Verdict::pass);
  EXPECT_EQ(verdict_of(1, "EDAC MC0: 32767 CE memory read error on DIMM_B2", 1), Verdict::degraded);
}

// The driver prints three lines, of which the first names the GPU and the last says what it has.
TEST_F(LogRulesTest, AGpuThatDoesNotAnswerTheProbeIsNamed) {
  LogAnalyzer analyzer;
  for (const char* const text : {"NVRM: The NVIDIA GPU 0000:b3:00.0",
                                 "NVRM: (PCI ID: 10de:26b5) installed in this system has",
                                 "NVRM: fallen off the bus and is not responding to commands."}) {
    analyzer.add({.boot_ns = kSecond, .text = text});
  }
  const Finding bad = bad_one(analyzer.findings());
  EXPECT_EQ(bad.name, "log.gpu");
  EXPECT_TRUE(is_finding(bad, Verdict::fail, "NVIDIA GPU 0000:b3:00.0"));
  EXPECT_TRUE(is_finding(bad, Verdict::fail, "fallen off the bus"));
  // As /dev/kmsg has it: one record.
  const Finding record = bad_one(findings_of(
      "3,9,1000000,-;NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID: 10de:26b5) installed in "
      "this system has\\x0aNVRM: fallen off the bus and is not responding to commands."));
  EXPECT_TRUE(is_finding(record, Verdict::fail, "NVIDIA GPU 0000:b3:00.0"));
}

TEST_F(LogRulesTest, PatternsAreWordsInTheirOrder) {
  EXPECT_TRUE(matches_pattern("a b c", "a*c"));
  EXPECT_TRUE(matches_pattern("a b c", "b"));
  EXPECT_FALSE(matches_pattern("a b c", "c*a"));
  EXPECT_FALSE(matches_pattern("aba", "ab*ba")) << "words do not overlap";
}

}  // namespace
}  // namespace ff::validate
