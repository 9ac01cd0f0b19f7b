"""What tests share: servers, small releases, environments, and slow truths to compare with."""
