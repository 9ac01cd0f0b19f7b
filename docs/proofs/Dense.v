(* The sensitivity of a dense grid (dpdist/measurement/dense_measurement.py, sensitivity/column_norms.py, sensitivity/group_contribution.py).
   z = A x in whole numbers. One record more moves z by a column of A; one record in place of another by the difference of two.
   Shown here: the squared length of a column from its 16-bit halves (exact_norms), inner products from 15-bit limbs (exact_gram), the
   distance of two columns from lengths and their inner product, and the bound of four times the largest length. *)
Require Import ZArith List Lia Psatz.
Import ListNotations.
Open Scope Z_scope.

Fixpoint dot (a b : list Z) : Z :=
  match a, b with x :: a', y :: b' => x * y + dot a' b' | _, _ => 0 end.
Definition square (a : list Z) : Z := dot a a.
Fixpoint minus (a b : list Z) : list Z :=
  match a, b with x :: a', y :: b' => (x - y) :: minus a' b' | _, _ => [] end.
Fixpoint joined (k : Z) (high low : list Z) : list Z :=
  match high, low with h :: high', l :: low' => (k * h + l) :: joined k high' low' | _, _ => [] end.

(* exact_norms: high, low = rows >> 16, rows & 0xFFFF, and numpy's a >> 16 is a floor, as Z's division is. *)
Lemma halves (v : Z) : v = 2 ^ 16 * (v / 2 ^ 16) + v mod 2 ^ 16.
Proof. apply Z.div_mod. lia. Qed.

Theorem exact_norms (high low : list Z) : length high = length low ->
  square (joined (2 ^ 16) high low) = 2 ^ 32 * square high + 2 ^ 17 * dot high low + square low.
Proof.
  unfold square. revert low. induction high as [|h high IH]; intros [|l low] E; cbn [length] in E; try discriminate; auto.
  cbn [joined dot]. rewrite IH by lia. ring.
Qed.

(* exact_gram: limbs of 15 bits of two columns. *)
Theorem exact_gram (high low high' low' : list Z) :
  length high = length low -> length high' = length low' -> length high = length high' ->
  dot (joined (2 ^ 15) high low) (joined (2 ^ 15) high' low') =
  2 ^ 30 * dot high high' + 2 ^ 15 * (dot high low' + dot low high') + dot low low'.
Proof.
  revert low high' low'. induction high as [|h high IH]; intros [|l low] [|h' high'] [|l' low'] E F G; cbn [length] in *;
    try discriminate; auto.
  cbn [joined dot]. rewrite IH by lia. ring.
Qed.

Theorem distance (a b : list Z) : length a = length b ->
  square (minus a b) = square a + square b - 2 * dot a b.
Proof.
  unfold square. revert b. induction a as [|x a IH]; intros [|y b] E; cbn [length] in E; try discriminate; auto.
  cbn [minus dot]. rewrite IH by lia. ring.
Qed.

(* Where pairs are not compared, a replaced record is charged as four times the largest column (sensitivity_squared, replace-one). *)
Theorem replaced (a b : list Z) (most : Z) : length a = length b -> square a <= most -> square b <= most ->
  square (minus a b) <= 4 * most.
Proof.
  intros E A B. assert (P : 0 <= square a + square b + 2 * dot a b).
  { clear A B. unfold square. revert b E. induction a as [|x a IH]; intros [|y b] E; cbn [length] in E; try discriminate; cbn [dot]; try lia.
    specialize (IH b ltac:(lia)). pose proof (Z.square_nonneg (x + y)). lia. }
  rewrite distance by assumption. lia.
Qed.
