"""The chart on a Kubernetes node that runs its pods: containerd, kubelet and a control plane on this machine (make kubernetes)."""
