(* The sensitivity of a symmetric grid (dpdist/measurement/orbit_measurement.py).
   On an attribute of c categories that are told apart, rows c I - 1 1' are measured: column j has c - 1 in place j and -1 elsewhere.
   Columns of a component are products of such columns with integer rows, so that their inner products multiply (Terms.v, kronecker). *)
Require Import ZArith List Lia Psatz.
Import ListNotations.
Open Scope Z_scope.

Definition same (i j : nat) : Z := if Nat.eqb i j then 1 else 0.
Definition entry (c : Z) (i j : nat) : Z := c * same i j - 1.

Fixpoint sum (f : nat -> Z) (n : nat) : Z := match n with O => 0 | S m => sum f m + f m end.

Lemma sum_zero j n : (n <= j)%nat -> sum (fun i => same i j) n = 0.
Proof. induction n; intros L; cbn [sum]; [reflexivity|]. rewrite IHn by lia. unfold same. destruct (Nat.eqb_spec n j); lia. Qed.

Lemma sum_one j n : (j < n)%nat -> sum (fun i => same i j) n = 1.
Proof.
  induction n; intros L; [lia|]. cbn [sum]. unfold same at 2. destruct (Nat.eqb_spec n j).
  - subst. rewrite sum_zero by lia. reflexivity.
  - rewrite IHn by lia. reflexivity.
Qed.

Lemma sum_both j k n : (j < n)%nat -> sum (fun i => same i j * same i k) n = same j k.
Proof.
  intros L. unfold same at 3. destruct (Nat.eqb_spec j k).
  - subst. rewrite <- (sum_one k n L). clear L. induction n; cbn [sum]; [reflexivity|]. rewrite IHn. unfold same. destruct (Nat.eqb n k); ring.
  - clear L. induction n; cbn [sum]; [reflexivity|]. rewrite IHn. unfold same.
    destruct (Nat.eqb_spec n j), (Nat.eqb_spec n k); subst; try ring; contradiction.
Qed.

Lemma expanded c j k n :
  sum (fun i => entry c i j * entry c i k) n =
  c * c * sum (fun i => same i j * same i k) n - c * sum (fun i => same i j) n - c * sum (fun i => same i k) n + Z.of_nat n.
Proof. unfold entry. induction n; cbn [sum]; [ring|]. rewrite IHn, Nat2Z.inj_succ. ring. Qed.

Theorem inner (n j k : nat) : (j < n)%nat -> (k < n)%nat ->
  sum (fun i => entry (Z.of_nat n) i j * entry (Z.of_nat n) i k) n =
  if Nat.eqb j k then Z.of_nat n * (Z.of_nat n - 1) else - Z.of_nat n.
Proof.
  intros J K. rewrite expanded, sum_both, !sum_one by assumption. unfold same. destruct (Nat.eqb j k); ring.
Qed.
